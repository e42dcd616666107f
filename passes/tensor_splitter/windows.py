"""Reads around the ends of a tensor, and ahead of an overwritten one (`regions/windows.py`)."""

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
    """The key among the states of a loop for its reads ahead of a tensor, distinct from the numbers of its nodes."""
    return -1 - number


def first_window(source: ir.Value, window: Window, tile: int) -> ir.Value:
    """The elements of a tensor that the first tile reads."""
    dim, inner = window.mapping.dim, window.mapping.inner
    before, after = (each * inner for each in window.extent)
    shape = build.shape_of(source)
    parts = [_piece(source, dim, 0, tile * inner + after)]
    if before:
        piece = _piece(source, dim, shape[dim] - before, shape[dim])
        parts.insert(0, piece if window.period else build.zeros(piece.type))
    return _joined(parts, dim)


def rows_behind(source: ir.Value, window: Window, runs: Sequence[TileRun]) -> ir.Value | None:
    """The elements that tiles read after the end of a tensor, or padding for a shorter last tile; None if neither."""
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
    """The elements that a tile of this length reads, from those carried for the longest one."""
    dim, length = window.mapping.dim, (tile + sum(window.extent)) * window.mapping.inner
    return near if build.shape_of(near)[dim] == length else _piece(near, dim, 0, length)


def next_window(
    near: ir.Value, window: Window, written: ir.Value, behind: ir.Value, length: int, kept: ir.Value | None
) -> ir.Value:
    """The elements that the next tile reads: the end of this one's, and the rest from the tensor written to.

    behind: the element after all that this tile has read. length: the elements of a tile. kept: the elements after the
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
    """Elements [place - before, place + tile + after) of a circular dimension.

    place: the start of the tile's own part, all of which is inside. extent: before and after.
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
    """The last elements of a dimension, followed by the first ones."""
    size = build.shape_of(source)[dim]
    return _joined([_piece(source, dim, size - count, size), _piece(source, dim, 0, count)], dim)


def _joined(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    return reduce(lambda left, right: build.join(left, right, dim), parts)
