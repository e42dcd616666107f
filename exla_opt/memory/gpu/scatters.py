"""Sums of scatters, which XLA merges: a scatter into zeros that nothing else reads starts from its addend instead.

Two such scatters become one with the updates of both.
"""

from __future__ import annotations

from exla_opt.ir.values import splat_value

from ..block import Block, Operation
from ..builder import Builder

_OPERANDS = 3


def merge_scatters(builder: Builder) -> None:
    """Merge each sum of two scatters into one; their indices and updates are concatenated."""
    block = builder.block
    producer = {value: op for op in block.ops for value in op.results}
    readers: dict[int, int] = {}
    for op in block.ops:
        for value in (*op.operands, *op.captures):
            readers[value] = readers.get(value, 0) + 1
    kept = set(block.returned)
    gone: set[int] = set()
    ops, block.ops = block.ops, []
    for op in ops:
        parts = [producer.get(value) for value in op.operands] if op.name == "add" else []
        found = [part for part in parts if part is not None and _is_sum_of_nothing_else(block, part)]
        alone = all(readers[value] == 1 and value not in kept for value in op.operands)
        if len(found) == 1 and readers[found[0].results[0]] == 1 and kept.isdisjoint(found[0].results):
            # The addend becomes the scatter's initial value.
            gone.update(found[0].results)
            [start] = [value for value in op.operands if value not in found[0].results]
            merged = Operation("scatter", found[0].traits, (start, *found[0].operands[1:]), op.results)
            block.ops.append(merged)
            producer[op.results[0]] = merged
            continue
        if len(found) != 2 or not alone or not _are_alike(block, *found):  # noqa: PLR2004
            block.ops.append(op)
            continue
        gone.update(value for part in found for value in part.results)
        joined = [_put_together(builder, op, found, side) for side in (1, 2)]
        merged = Operation("scatter", found[0].traits, (found[0].operands[0], *joined), op.results)
        block.ops.append(merged)
        producer[op.results[0]] = merged
    block.ops = [op for op in block.ops if op.name != "scatter" or gone.isdisjoint(op.results)]


def _is_sum_of_nothing_else(block: Block, op: Operation) -> bool:
    """Whether an op scatters one tensor of updates into zeros."""
    if op.name != "scatter" or len(op.operands) != _OPERANDS:
        return False
    start = block.values.get(op.operands[0])
    return start is not None and splat_value(start) == 0


def _are_alike(block: Block, one: Operation, other: Operation) -> bool:
    """Whether the indices and the updates of two scatters have the same kind."""
    shapes, dtypes = block.shapes, block.dtypes
    pairs = list(zip(one.operands[1:], other.operands[1:], strict=True))
    same = all(shapes[left][1:] == shapes[right][1:] and dtypes[left] == dtypes[right] for left, right in pairs)
    return same and all(shapes[value] for pair in pairs for value in pair)


def _put_together(builder: Builder, op: Operation, parts: list[Operation], side: int) -> int:
    """The number of the concatenation of the operands of two scatters on one side."""
    block = builder.block
    values = tuple(part.operands[side] for part in parts)
    shape = (sum(block.shapes[value][0] for value in values), *block.shapes[values[0]][1:])
    joined = builder.fresh(block.values[op.results[0]], shape, values[0])
    builder.add_plain("concatenate", values, (joined,))
    return joined
