"""The sums of a loop that may be computed after it: no other carry depends on them, and no element on another."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import walk
from exla_opt.ops.effects import has_order
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.passes.loop_residuals.steps import Step

# Counters of fewer bits may not hold the number of a step, counted from the first. Any carry may be one.
_BITS = 32


@dataclass(frozen=True, slots=True)
class Sum:
    """A carry that each step only changes elementwise.

    ops: the positions of the ops that depend on the carry, in order. terms: the other values of the step that these
    read, by number.
    """

    carry: int
    ops: tuple[int, ...]
    terms: tuple[int, ...]


def may_be_copied(loop: ir.Operation) -> bool:
    """Whether a second loop may count as this one: no carry is of narrow integers, no attribute or effect is lost."""
    condition = loop.regions[0].blocks[0]
    integers = [element_type(value) for value in loop.results if isinstance(value.type, ir.RankedTensorType)]
    is_narrow = any(isinstance(kind, ir.IntegerType) and 1 < kind.width < _BITS for kind in integers)
    return not len(loop.attributes) and not is_narrow and not any(map(has_order, walk(condition)))


def find_sums(step: Step, threshold: int) -> list[Sum]:
    """The carries above the threshold, in bytes, that are sums; none if the loop does nothing else but count."""
    found = [each for carry in range(len(step.returned)) if (each := _sum(step, carry, threshold)) is not None]
    sums = {each.carry for each in found}
    others = [carry for carry in range(len(step.returned)) if carry not in sums and not step.is_counted(carry)]
    return found if others else []


def _sum(step: Step, carry: int, threshold: int) -> Sum | None:
    """The sum that a carry is, if it is one."""
    condition = step.loop.regions[0].blocks[0]
    result, argument = step.loop.results[carry], condition.arguments[carry]
    if step.bytes[carry] <= threshold or step.is_counted(carry) or next(iter(argument.uses), None) is not None:
        return None
    if next(iter(result.uses), None) is None:
        return None
    own = {carry}
    ops: list[int] = []
    for position, op in enumerate(step.ops):
        if own.isdisjoint(step.reads[position]):
            continue
        if not has_trait(op, Trait.POINTWISE) or len(op.results) != 1 or has_discardable_attributes(op):
            return None
        number = step.number[op.results[0]]
        if step.values[number].type != step.values[carry].type:
            return None
        own.add(number)
        ops.append(position)
    if not ops or any((value in own) != (place == carry) for place, value in enumerate(step.returned)):
        return None
    read = dict.fromkeys(value for position in ops for value in step.reads[position] if value not in own)
    return Sum(carry, tuple(ops), tuple(read))
