"""Computes what one branch stores for a later one where it is read, from less.

    %h, %r = case(%k) { g(%x), tanh(%x) }          %h = case(%k) { g(%x) }
    %d = case(%k) { use(%r) }                 ->   %d = case(%k) { use(tanh(%x)) }

The gradient of `lax.cond` or `lax.switch` is a second case on the same index, and the first returns for it what each
branch computed: in every branch as many tensors as all of them together need. The splitter cuts both cases in one loop
if a factor reaches through them. A norm over the batch in a branch, for example, prevents that; and once the later
branch computes all that it reads, loops in that branch can.

Applies to a case of which the results that only later cases on the same index read take more than the threshold
together. What is stored instead is a minimum cut through each branch (`choose.py`): results that stay, and what the
branch captures.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import Types
from exla_opt.ir.walk import BRANCHES, inside_out
from exla_opt.options import Options

from .build import build_plan
from .choose import choose
from .legal import find_residuals


def stores_for_branches(module: ir.Module, options: Options) -> bool:
    """Whether a case returns more than the threshold for later ones to read."""
    types = Types()
    return any(find_residuals(case, options.size_threshold, types) for case in inside_out(module, *BRANCHES))


def recompute_in_branches(module: ir.Module, options: Options) -> bool:
    """Let later cases compute what they read of earlier ones, where that stores less; return whether there were any."""
    changed = False
    for case in inside_out(module, *BRANCHES):
        types = Types()  # the memory of an erased value may be reused for the next
        residuals = find_residuals(case, options.size_threshold, types)
        plan = choose(case, residuals, types) if residuals else None
        if plan is not None:
            build_plan(case, residuals, plan)
            changed = True
    if changed:
        clean_up(module)
    return changed
