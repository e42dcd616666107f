"""Loops with fewer carries."""

from __future__ import annotations

from collections.abc import Collection

from jaxlib.mlir import ir

from exla_opt.ir.walk import terminator


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
