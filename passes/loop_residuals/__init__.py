"""loop-residuals: what a loop stores of each step for another to read -> computed in the other, from less.

    while i: %c = f(%c); stack[i] = g(%c)          while i: carries[i] = %c; %c = f(%c)
    while j: use(stack[n - 1 - j])            ->   while j: use(g(carries[n - 1 - j]))

Applies to loops of a known number of steps, the gradient of a scan above all, whose stacks take more than the threshold
together and are read one step at a time. What is stored instead is a smallest cut through the step (`choose.py`): the
carries as a rule, as with jax.checkpoint, and what is small and dear. Where that is above the threshold too, many steps
are cut into segments (`segments.py`). What is made for all steps at once is made by the step that reads it
(`inputs.py`), and what is stacked only to be summed is summed in the loop (`sums.py`). Refuses, with a remark, what is
read in another way, what must not run twice, what would gain nothing. Leaves the module as it came where it would need
more memory.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.remarks import Remark

from .driver import recompute_residuals


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Recompute what loops of the module stack; returns what was done and what was not, and why."""
    return recompute_residuals(module, options)
