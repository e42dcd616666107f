"""Whether all splits of a module together gain anything: what one gains another may lose."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import copy_of
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes import narrow_slices

# A program of so few bytes is not asked whether it has gained anything.
_NO_MATTER = 2**22


def lowers_peak(original: ir.Module, module: ir.Module, options: Options) -> bool:
    """Whether all splits together lower the predicted peak.

    Asked of the modules as they go on: of a narrow float that the loops read in slices no wider copy is made.
    """
    before, after = (_peak_of_slices(each, options) for each in (original, module))
    return after < _NO_MATTER or after < before


def _peak_of_slices(module: ir.Module, options: Options) -> int:
    """The predicted peak of a module once its slices of narrow floats are read before all of the tensor is widened."""
    module = copy_of(module)
    narrow_slices.run(module, options)
    return predict(module, options.machine).peak
