"""Replaces a while that runs once, or never, by its body, or its initial values."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.loops import trip_count
from exla_opt.ir.walk import inside_out, operations_of, walk
from exla_opt.ops.effects import has_side_effect


def inline_short_loops(module: ir.Module) -> bool:
    """Replace each loop of one trip by its body, and each that never runs by its initial values.

    Returns whether there was one. XLA inlines them as well, but only after the split: here the ops before, in and after
    the loop are seen as one program.
    """
    changed = False
    for loop in inside_out(module, "stablehlo.while"):
        if _is_short(loop):
            _inline(loop, trip_count(loop) == 1)
            changed = True
    return changed


def _is_short(loop: ir.Operation) -> bool:
    """Whether the loop is known to run at most once, and its condition does nothing else."""
    if len(loop.attributes):  # such as a sharding
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
