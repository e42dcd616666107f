"""Puts a block back in order after loops were inserted: every op behind what it reads, else as it stood."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.walk import captured_values

# Ops whose order among each other is part of the program, whatever their operands.
_ORDERED = frozenset("stablehlo." + name for name in "rng rng_bit_generator infeed outfeed send recv".split())


def _has_order(op: ir.Operation) -> bool:
    """Whether the op, or one in its regions, may do more than compute its results."""
    if not len(op.regions):
        return _has_effect(op)
    found = False

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or _has_effect(inner)
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def _has_effect(op: ir.Operation) -> bool:
    if op.name == "stablehlo.custom_call":
        return "has_side_effect" in op.attributes and ir.BoolAttr(op.attributes["has_side_effect"]).value
    return op.name in _ORDERED


def restore_order(block: ir.Block) -> None:
    """Move ops so that all operands are defined before use: a stable depth-first topological order.

    Ops with side effects keep their order. Linear in the size of the block.
    """
    ops = [view.operation for view in block.operations]
    maker = {result: index for index, op in enumerate(ops) for result in op.results}
    needs: list[list[int]] = []
    last_effect = -1
    for index, op in enumerate(ops):
        values = [*op.operands, *(captured_values(op) if len(op.regions) else ())]
        needed = [maker[value] for value in values if value in maker]
        if _has_order(op):
            if last_effect >= 0:
                needed.append(last_effect)
            last_effect = index
        needs.append(needed)
    if all(other < index for index, needed in enumerate(needs) for other in needed):
        return
    order: list[int] = []
    placed = [False] * len(ops)
    for index in range(len(ops) - 1):
        stack = [index]
        while stack:
            current = stack[-1]
            if placed[current]:
                stack.pop()
                continue
            missing = [other for other in needs[current] if not placed[other]]
            if missing:
                stack.extend(reversed(missing))
                continue
            placed[current] = True
            order.append(current)
            stack.pop()
    terminator = ops[-1]
    for index in order:
        ops[index].move_before(terminator)
