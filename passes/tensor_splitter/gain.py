"""Decides whether all splits of a module together gain anything: some may increase the memory of others."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import copy_of
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes import narrow_slices

# Programs with fewer bytes than this are not checked for a gain.
_NO_MATTER = 2**22


def lowers_peak(original: ir.Module, module: ir.Module, options: Options) -> bool:
    """Whether all splits together lower the predicted peak.

    Compares the modules as later passes leave them: a narrow float that the loops read in slices gets no wider copy.
    """
    before, after = (_peak_of_slices(each, options) for each in (original, module))
    return after < _NO_MATTER or after < before


def _peak_of_slices(module: ir.Module, options: Options) -> int:
    """The predicted peak of a module once its slices of narrow floats are read before the tensor is widened."""
    module = copy_of(module)
    narrow_slices.run(module, options)
    return predict(module, options.machine).peak
