"""Loops: how often they run, and with fewer carries."""

from __future__ import annotations

from collections.abc import Collection

from jaxlib.mlir import ir

from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import terminator


def trip_count(loop: ir.Operation) -> int | None:
    """How often a `while` runs that counts up by a constant to a constant; None for any other."""
    condition, body = (region.blocks[0] for region in loop.regions)
    test = defining_op(terminator(condition).operands[0], "stablehlo.compare")
    if test is None or "LT" not in str(test.attributes["comparison_direction"]):
        return None
    counter, bound = test.operands[0], splat_value(test.operands[1])
    if not isinstance(counter.owner, ir.Block) or not isinstance(bound, int):
        return None
    place = ir.BlockArgument(counter).arg_number
    start = splat_value(loop.operands[place])
    step = _step(body.arguments[place], terminator(body).operands[place])
    if not isinstance(start, int) or not isinstance(step, int) or step < 1:
        return None
    return max(0, -((start - bound) // step))


def _step(counter: ir.Value, following: ir.Value) -> int | float | None:
    """What is added to the counter in a trip, where that is one number."""
    addition = defining_op(following, "stablehlo.add")
    if addition is None or counter not in (operands := list(addition.operands)):
        return None
    return splat_value(operands[1 - operands.index(counter)])


def drop_carries(loop: ir.Operation, dropped: Collection[int]) -> None:
    """Put a loop in the place of the while `loop` that does not carry the values with these numbers.

    What they start with is used for them everywhere. At least one carry must be left.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    for index in dropped:
        value = loop.operands[index]
        for carried in (condition.arguments[index], body.arguments[index], loop.results[index]):
            carried.replace_all_uses_with(value)
    kept = [index for index in range(len(loop.operands)) if index not in set(dropped)]
    last = terminator(body)
    with ir.InsertionPoint(last):
        ir.Operation.create(last.name, operands=[last.operands[index] for index in kept], loc=last.location)
    last.erase()
    for block in (condition, body):
        for index in sorted(dropped, reverse=True):
            block.erase_argument(index)
    smaller = ir.Operation.create(
        loop.name,
        results=[loop.results[index].type for index in kept],
        operands=[loop.operands[index] for index in kept],
        regions=2,
        loc=loop.location,
        ip=ir.InsertionPoint(loop),
    )
    condition.append_to(smaller.regions[0])
    body.append_to(smaller.regions[1])
    for index, result in zip(kept, smaller.results, strict=True):
        loop.results[index].replace_all_uses_with(result)
    loop.erase()
