"""exla-opt: makes XLA programs fit in memory by rewriting their StableHLO."""

from exla_opt.api import jit, optimize
from exla_opt.options import Options

__version__ = "0.1.0"

__all__ = ["Options", "__version__", "jit", "optimize"]
