"""Restores the order of a block after loops were inserted: every op after its operands, otherwise as before."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir

from exla_opt.ir.walk import captured_values


class CannotOrder(Exception):
    """Two ops depend on each other."""


def restore_order(block: ir.Block, has_order: Callable[[ir.Operation], bool]) -> None:
    """Move ops so that all operands are defined before use: a stable depth-first topological order.

    has_order: whether an op must keep its order among such ops. Linear in the size of the block. Raises CannotOrder.
    """
    ops = [view.operation for view in block.operations]
    definer = {result: index for index, op in enumerate(ops) for result in op.results}
    needs: list[list[int]] = []
    last_effect = -1
    for index, op in enumerate(ops):
        values = [*op.operands, *(captured_values(op) if len(op.regions) else ())]
        needed = [definer[value] for value in values if value in definer]
        if has_order(op):
            if last_effect >= 0:
                needed.append(last_effect)
            last_effect = index
        needs.append(needed)
    if all(other < index for index, needed in enumerate(needs) for other in needed):
        return
    order: list[int] = []
    placed, opened = [False] * len(ops), [False] * len(ops)
    for index in range(len(ops) - 1):
        stack = [index]
        while stack:
            current = stack[-1]
            if placed[current]:
                stack.pop()
                continue
            missing = [other for other in needs[current] if not placed[other]]
            if missing and opened[current]:
                raise CannotOrder
            if missing:
                opened[current] = True
                stack.extend(reversed(missing))
                continue
            placed[current] = True
            order.append(current)
            stack.pop()
    terminator = ops[-1]
    for index in order:
        ops[index].move_before(terminator)
