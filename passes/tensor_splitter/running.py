"""Subtrahends that a loop is still computing: a maximum or a mean, before a tile and after it."""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.passes.algebra import means
from exla_opt.passes.algebra.running import finite, rescaled

from .graph import Graph, TiledOp
from .regions.region import Running, Shift

# The subtrahends before a tile and after it.
Both = tuple[ir.Value, ir.Value]


def shifted(
    running: Running, tiled: TiledOp, total: ir.Value, shifts: Mapping[int, Both], place: ir.Value | None
) -> ir.Value:
    """A sum over the tiles so far, converted to the new subtrahend.

    shifts: by subtrahend. place: of the tile in the summed dimension, 0-d; so many elements were summed before.
    """
    found = running.sums.get(tiled.node)
    if found is None or found.shift is None:
        return total
    old, new = shifts[found.shift]
    if not running.shifts[found.shift].mean:
        return rescaled(total, old, new, found.dims)
    cut = tiled.operands[0]
    assert cut is not None and place is not None
    count = build.convert(place, element_type(old))
    return means.moved(total, old, new, found.dims, count, found.weight / (cut.length * cut.inner))


def shifts_of(
    graph: Graph, tiled: TiledOp, number: int, shift: Shift, found: Both, place: ir.Value | None, tile: int
) -> Both:
    """The subtrahends before and after a tile.

    found: the current results, by op. place: as in `shifted`. tile: its indices.
    """
    before, after = found
    if not shift.mean:
        return _handed_on(graph, number, shift, before), finite(_handed_on(graph, number, shift, after))
    cut = tiled.operands[0]
    assert cut is not None and place is not None
    count, end = cut.length * cut.inner, stablehlo.add(place, build.scalar_like(place, tile * cut.inner))
    old = _handed_on(graph, number, shift, means.as_of_all(before, count, place))
    new = _handed_on(graph, number, shift, means.as_of_all(after, count, end))
    return means.before_any(old, new, place), new


def _handed_on(graph: Graph, number: int, shift: Shift, found: ir.Value) -> ir.Value:
    """The subtrahend for this result of the op."""
    values = {graph.nodes[shift.op].results[0]: found}
    for position in shift.between:
        node = graph.nodes[position]
        clone = node.op.clone(ip=ir.InsertionPoint.current).operation
        for index, operand in enumerate(node.operands):
            if operand in values:
                clone.operands[index] = values[operand]
        values[node.results[0]] = clone.results[0]
    return values[number]
