"""loop-residuals: tensors that a loop stores step by step for another loop -> recomputed there, from less.

    while i: %c = f(%c); stack[i] = g(%c)          while i: carries[i] = %c; %c = f(%c)
    while j: use(stack[n - 1 - j])            ->   while j: use(g(carries[n - 1 - j]))

Applies to loops of a known trip count, above all the gradient of a scan, whose stacks take more than the threshold
together and are read one step at a time. What is stored instead is a minimum cut through the step (`choose.py`):
normally the carries, as with jax.checkpoint, and small values that are expensive to recompute. If that is above the
threshold too, long loops are split into segments (`segments.py`). Inputs that are computed for all steps at once are
computed by the step that reads them (`inputs.py`), and stacks that are only summed are summed in the loop (`sums.py`).
Refuses, with a remark, stacks that are read in another way, ops that must not run twice, and changes that would gain
nothing. Leaves the module unchanged if it would need more memory.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .driver import recompute_residuals


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute the stacks of loops of the module; return the remarks."""
    return recompute_residuals(module, options)
