"""Detects recomputation at several positions of shifted tensors: segments, which store the values, are then faster.

NOTE [Shifts]

XLA:CPU writes one loop over elements for fused ops. If a pad or a slice shifts a tensor against another, everything
fused into it is computed at each of the positions that are read, after a bounds test, and without vector instructions.
Stored values of a step end such chains; recomputed in the step that reads it, a gradient of `logaddexp(a, shift(a))`
takes several times as long. The steps of a segment store it as the loop did.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ops.traits import Trait, has_trait, traits_of

from .choose import Plan
from .readers import step_readers
from .steps import Step, is_dear

_THROUGH = Trait.POINTWISE | Trait.REARRANGES


def are_shifted(step: Step, plan: Plan, types: Types) -> bool:
    """Whether readers would recompute slow functions and shift them, in steps without expensive ops."""
    if any(map(is_dear, step.ops)):
        return False
    read = [
        reader.op.results[0]
        for stack in plan.replaced
        if _is_slow(step, plan, stack.value)
        for reader in step_readers(step.loop.results[stack.carry], types)
    ]
    return _reach_shift(read)


def _is_slow(step: Step, plan: Plan, value: ir.Value) -> bool:
    """Whether recomputing a value of the step involves a slow function."""
    if value not in step.number:
        return False
    again = step.slice_of([step.number[value]], plan.sources) - plan.sources.keys()
    return any(step.definers[each] >= 0 and has_trait(step.ops[step.definers[each]], Trait.SLOW) for each in again)


def _reach_shift(values: Sequence[ir.Value]) -> bool:
    """Whether an elementwise function of the values is then shifted."""
    queue, seen = list(values), set(values)
    while queue:
        for use in queue.pop().uses:
            user = use.owner.operation
            traits = traits_of(user.name)
            if Trait.MOVES in traits and not traits & (Trait.REARRANGES | Trait.FREE | Trait.IN_PLACE):
                return True
            if traits & _THROUGH and user.results[0] not in seen:
                seen.add(user.results[0])
                queue.append(user.results[0])
    return False
