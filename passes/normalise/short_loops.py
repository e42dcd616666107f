"""A while that runs once, or never: its body, or what it starts with, takes its place."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.loops import trip_count
from exla_opt.ir.walk import operations_of, walk
from exla_opt.ops.effects import has_side_effect


def inline_short_loops(module: ir.Module) -> bool:
    """Put the body of each loop of one trip, and the start of each that never runs, in the place of the loop.

    Returns whether there was one. XLA inlines them as well, but only after it was split: here what is before the loop,
    in it and behind it is seen as one program.
    """
    loops: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.while":
            loops.append(op)
        return ir.WalkResult.ADVANCE

    # Inner ones first, in program order: a handle is not used any more when its op goes with an outer one.
    module.operation.walk(visit, ir.WalkOrder.POST_ORDER)
    changed = False
    for loop in loops:
        if _is_short(loop):
            _inline(loop, trip_count(loop) == 1)
            changed = True
    return changed


def _is_short(loop: ir.Operation) -> bool:
    """Whether the loop is known to run at most once, and its condition does nothing but to say so."""
    if len(loop.attributes):  # a sharding, say
        return False
    trips = trip_count(loop)
    return trips is not None and trips <= 1 and not any(map(has_side_effect, walk(loop.regions[0].blocks[0])))


def _inline(loop: ir.Operation, runs: bool) -> None:
    values = list(loop.operands)
    if runs:
        body = loop.regions[1].blocks[0]
        for argument, value in zip(body.arguments, values, strict=True):
            argument.replace_all_uses_with(value)
        *inner, last = operations_of(body)
        for moved in inner:
            moved.move_before(loop)
        values = list(last.operands)
    for old, new in zip(loop.results, values, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()
