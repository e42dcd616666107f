"""What is read around the ends of a tensor, and ahead of one that is overwritten (`regions/windows.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.tile import replaced

from .plans.runs import TileRun
from .regions.windows import Window


def window_key(number: int) -> int:
    """Where among the states of a loop what it reads ahead of a tensor stands: beside the numbers of its nodes."""
    return -1 - number


def first_window(source: ir.Value, window: Window, tile: int) -> ir.Value:
    """What the first tile reads of a tensor."""
    dim, inner = window.mapping.dim, window.mapping.inner
    before, after = (each * inner for each in window.extent)
    shape = build.shape_of(source)
    parts = [_piece(source, dim, 0, tile * inner + after)]
    if before:
        piece = _piece(source, dim, shape[dim] - before, shape[dim])
        parts.insert(0, piece if window.period else build.zeros(piece.type))
    return _joined(parts, dim)


def rows_behind(source: ir.Value, window: Window, runs: Sequence[TileRun]) -> ir.Value | None:
    """What tiles read behind the end of a tensor, and something where the last tile is shorter; None if nothing."""
    dim, inner = window.mapping.dim, window.mapping.inner
    shorter = (runs[0].tile - runs[1].tile) * inner if len(runs) > 1 else 0
    after, shape = window.extent[1] * inner, build.shape_of(source)
    parts = []
    if after:
        piece = _piece(source, dim, 0, after)
        parts.append(piece if window.period else build.zeros(piece.type))
    if shorter:
        parts.append(build.zeros(build.with_shape(build.tensor_of(source), replaced(shape, dim, shorter))))
    return _joined(parts, dim) if parts else None


def _piece(source: ir.Value, dim: int, start: int, limit: int) -> ir.Value:
    shape = build.shape_of(source)
    return stablehlo.slice(
        source, replaced([0] * len(shape), dim, start), replaced(shape, dim, limit), [1] * len(shape)
    )


def beginning(near: ir.Value, window: Window, tile: int) -> ir.Value:
    """What a tile of this length reads of what is carried for the longest one."""
    dim, length = window.mapping.dim, (tile + sum(window.extent)) * window.mapping.inner
    return near if build.shape_of(near)[dim] == length else _piece(near, dim, 0, length)


def next_window(
    near: ir.Value, window: Window, written: ir.Value, behind: ir.Value, length: int, kept: ir.Value | None
) -> ir.Value:
    """What the next tile reads: of what this one has read the end, and the rest of what it was written to.

    behind: the element behind all that this tile has read. length: the elements of a tile. kept: what comes behind the
    end of the tensor.
    """
    dim = window.mapping.dim
    last = build.scalar_like(behind, window.mapping.length * window.mapping.inner - length)
    read = build.slice_along(written, dim, stablehlo.minimum(behind, last), length)
    if kept is not None:
        beyond = stablehlo.maximum(stablehlo.subtract(behind, last), build.zeros(behind.type))
        read = build.slice_along(_joined([read, kept], dim), dim, beyond, length)
    return _joined([_piece(near, dim, length, build.shape_of(near)[dim]), read], dim)


def ring_slice(source: ir.Value, mapping: DimMapping, place: ir.Value, tile: int, extent: tuple[int, int]) -> ir.Value:
    """Elements [place - before, place + tile + after) of a dimension that goes round.

    place: where the tile's own part begins, all of which is inside. extent: before and after.
    """
    (before, after), dim = extent, mapping.dim
    parts = [build.slice_along(source, dim, place, tile)]
    if before:
        around = _ring_ends(source, dim, before)
        begin = stablehlo.subtract(place, build.scalar_like(place, before))
        near = build.less_than(place, build.scalar_like(place, before))
        plain = build.slice_along(source, dim, begin, before)
        parts.insert(0, stablehlo.select(near, build.slice_along(around, dim, place, before), plain))
    if after:
        around = _ring_ends(source, dim, after)
        end = stablehlo.add(place, build.scalar_like(place, tile))
        inside = stablehlo.subtract(end, build.scalar_like(place, mapping.length - after))
        near = build.less_than(build.zeros(place.type), inside)
        plain = build.slice_along(source, dim, end, after)
        parts.append(stablehlo.select(near, build.slice_along(around, dim, inside, after), plain))
    return _joined(parts, dim)


def _ring_ends(source: ir.Value, dim: int, count: int) -> ir.Value:
    """The last elements of a dimension, and behind them the first ones."""
    size = build.shape_of(source)[dim]
    return _joined([_piece(source, dim, size - count, size), _piece(source, dim, 0, count)], dim)


def _joined(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    return reduce(lambda left, right: build.join(left, right, dim), parts)
