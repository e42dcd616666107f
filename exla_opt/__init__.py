"""exla-opt: makes XLA programs fit in memory by rewriting their StableHLO."""

from exla_opt.api import Jitted, Result, jit, optimize
from exla_opt.findings import StaysInMemory
from exla_opt.ir.diagnostics import InputError
from exla_opt.remarks import Remark
from exla_opt.version import __version__

__all__ = ["InputError", "Jitted", "Remark", "Result", "StaysInMemory", "__version__", "jit", "optimize"]
