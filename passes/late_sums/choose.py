"""What a loop stores of each step for a sum that is computed after it, and whether that is worthwhile.

What is stored is a minimum cut, as in loop-residuals: the fewest bytes from which all terms can be computed. The source
leads to the carries that a step changes, to results of ops that must not run twice, and to small results of expensive
ops; a counter, and what all steps share, cost nothing. Of several cuts, the one nearest to the terms computes the least
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import operands_of
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.passes.loop_residuals.cut import UNLIMITED, cheapest
from exla_opt.passes.loop_residuals.steps import Step, is_dear

from .legal import Sum

# What is stored, and what expensive ops read and write that run in both loops, takes at most this fraction of the sum.
_PART = 4
# The results of products of matrices and of other expensive ops are stored if all take at most this fraction of it.
_SMALL = 64
_CALL = "func.call"


def find_stored(step: Step, found: Sum) -> set[int]:
    """The values to store, by number: a minimum cut before the terms."""
    return cheapest(
        sorted(step.slice_of(found.terms)),
        found.terms,
        lambda value: step.bytes[value] * step.counting.trips or UNLIMITED,
        lambda value: None if _begins(step, found, value) else step.operands_of(value),
    )


def _begins(step: Step, found: Sum, value: int) -> bool:
    """Whether a value cannot, or should not, be computed from the number of its step and from its operands."""
    position = step.definers[value]
    if position < 0:
        return not step.is_counted(value)
    if step.acts[position] or step.asks[position] or value in step.same or step.ops[position].name == _CALL:
        return True
    is_small = step.bytes[value] * step.counting.trips * _SMALL <= step.bytes[found.carry]
    return is_small and is_dear(step.ops[position])


def is_worthwhile(step: Step, found: Sum, stored: set[int], types: Types) -> bool:
    """Whether little is stored, by number as found by `find_stored`, and little is computed twice."""
    most = step.bytes[found.carry] // _PART
    takes = sum(step.bytes[value] for value in stored) * step.counting.trips
    return takes <= most and _repeated(step, found, stored, types) <= most


def needs_all_of_something(step: Step, sums: Sequence[Sum], threshold: int, types: Types) -> bool:
    """Whether the other carries are computed by a product, or a library, of a tensor above the threshold, in bytes.

    Without one, the splitter runs the loop as it is for each tile: nothing need be stored.
    """
    carries = {found.carry for found in sums}
    returned = (value for place, value in enumerate(step.returned) if place not in carries)
    needed = step.slice_of(value for value in returned if value is not None)
    ops = [step.ops[position] for position in {step.definers[value] for value in needed} - {-1}]
    return any(is_dear(op) and _largest(op, types) > threshold for op in ops)


def _repeated(step: Step, found: Sum, stored: set[int], types: Types) -> int:
    """The bytes that expensive ops read and write which would run in both loops."""
    values = step.slice_of(found.terms, stored) - stored
    moved = {step.definers[value] for value in values} - {-1}
    read = {value for place, value in enumerate(step.returned) if place != found.carry}
    for position in range(len(step.ops)):
        if position not in moved and position not in found.ops:
            read.update(step.reads[position])
    twice = {step.definers[value] for value in step.slice_of(values & read, stored) - stored} - {-1}
    return sum(_bytes_of(step.ops[position], types) for position in twice)


def _bytes_of(op: ir.Operation, types: Types) -> int:
    """The bytes of an expensive op's largest result, or of a product's largest tensor; 0 for any other op."""
    if has_trait(op, Trait.CONTRACTS):
        return _largest(op, types)
    if not is_dear(op) and not has_trait(op, Trait.EXPENSIVE):
        return 0
    return max((types.of(value).bytes for value in op.results), default=0)


def _largest(op: ir.Operation, types: Types) -> int:
    return max((types.of(value).bytes for value in operands_of(op) + list(op.results)), default=0)


def is_kept(value: ir.Value, types: Types) -> bool:
    """Whether a reader of a tensor, or of another of more than half its size that is computed from it, needs all of it.

    Elementwise ops, moves, sums and products can be computed tile by tile.
    """
    size = types.of(value).bytes
    tiles = (Trait.POINTWISE, Trait.MOVES, Trait.REDUCES, Trait.CONTRACTS)
    seen = {value}
    queue = [value]
    while queue:
        for use in queue.pop().uses:
            op = use.owner.operation
            if not any(has_trait(op, trait) for trait in tiles):
                return True
            big = [result for result in op.results if types.of(result).bytes * 2 > size and result not in seen]
            seen.update(big)
            queue += big
    return False
