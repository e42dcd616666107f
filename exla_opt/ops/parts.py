"""Ops that slice, pad or concatenate tensors at positions given by attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers

from .definition import NONE, OpDefinition
from .factor import DimMapping, Factor, Shape, Shapes, independent
from .sizes import set_integers, shapes_of
from .tie import Site, Spoken, all_same, tie_part
from .tile import Tile, read_padded, replaced, result_mapping

OPS: dict[str, OpDefinition] = {}


def _slice_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Result [a, b) of a dimension is operand [start + a * stride, start + b * stride), every stride-th element.

    Along a dimension that the stride does not divide, the tile is read from the unsplit operand.
    """
    starts, strides = integers(op, "start_indices", []), integers(op, "strides", [])
    factors = []
    for dim, (size, length) in enumerate(zip(shapes.operands[0], shapes.results[0], strict=True)):
        stride = strides[dim]
        count = size // stride
        if length < 1 or size < 2:
            continue
        if size % stride:
            factors += [independent(length, [None], [DimMapping(dim, length)])] if length > 1 else []
        elif count > 1:
            low = starts[dim] // stride
            factors.append(
                independent(count, [DimMapping(dim, count, inner=stride)], [DimMapping(dim, length, low=low)])
            )
    return tuple(factors)


def _slice_tile(tile: Tile) -> list[ir.Value]:
    """Along a dimension that is read from the unsplit operand, the span of the tile is sliced first."""
    mapping, (low, high) = result_mapping(tile)
    starts, strides = (integers(tile.op, name, []) for name in ("start_indices", "strides"))
    stride = strides[mapping.dim]
    source = tile.operand_ranges[0]
    operands = list(tile.operands)
    spanned = (high - low - 1) * stride + 1
    if source is None:
        place = stablehlo.multiply(tile.begin((low, high)), build.scalar_like(tile.start, stride))
        first = stablehlo.add(place, build.scalar_like(tile.start, starts[mapping.dim]))
        operands[0] = build.slice_along(operands[0], mapping.dim, first, spanned)
    begin = 0 if source is None else (low - source[0]) * stride + starts[mapping.dim] % stride
    limits = integers(tile.op, "limit_indices", [])
    return replace(tile, operands=operands).clone(
        {
            "start_indices": ir.DenseI64ArrayAttr.get(replaced(starts, mapping.dim, begin)),
            "limit_indices": ir.DenseI64ArrayAttr.get(replaced(limits, mapping.dim, begin + spanned)),
        }
    )


def _slice_ties(site: Site) -> Spoken:
    operand, result = (site.classes.places(value) for value in (site.op.operands[0], site.op.results[0]))
    sizes = zip(*(site.classes.shape(value) for value in (site.op.operands[0], site.op.results[0])), strict=True)
    strides = integers(site.op, "strides", [])
    for whole, part, pair, stride in zip(operand, result, sizes, strides, strict=True):
        if pair[1]:
            yield from tie_part(site, whole, part, pair, stride)


def _slice_resize(op: ir.Operation, before: Sequence[Shape]) -> None:
    """The slice keeps its position in proportion, and its end if it reached the end of the operand."""
    names = ("start_indices", "limit_indices", "strides")
    starts, limits, strides = (integers(op, name, []) for name in names)
    new = shapes_of(op)
    for dim, (old, size, length, stride) in enumerate(zip(before[0], *new, strides, strict=True)):
        if (old, before[1][dim]) == (size, length):
            continue
        span = (length - 1) * stride + 1
        last = size - span
        starts[dim] = last if limits[dim] == old else min(starts[dim] * size // old, last)
        limits[dim] = starts[dim] + span
    set_integers(op, names[0], starts)
    set_integers(op, names[1], limits)


OPS["stablehlo.slice"] = OpDefinition(
    factors=_slice_factors,
    tile=_slice_tile,
    ties=_slice_ties,
    resize=_slice_resize,
    combination=NONE,
    reason="",
)


def _pad_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """The operand is result [low, low + n) of a dimension; with interior padding, every (interior + 1)-th element.

    Negative padding drops ends of the operand. If the distance between elements does not divide the result, or elements
    of an operand with interior padding are dropped, the tile is read from the unsplit operand.
    """
    low, high = integers(op, "edge_padding_low", []), integers(op, "edge_padding_high", [])
    interior = integers(op, "interior_padding", [])
    factors = []
    for dim, (length, size) in enumerate(zip(shapes.operands[0], shapes.results[0], strict=True)):
        stride = interior[dim] + 1
        if length < 1 or size < 1 or max(length, size) < 2:
            continue
        if stride == 1:
            before, after = max(low[dim], 0), max(-low[dim], 0)
            extent = max(before + length, after + size)
            operand = DimMapping(dim, length, low=before)
            factors.append(independent(extent, [operand, None], [DimMapping(dim, size, low=after)]))
        elif size % stride == 0 and min(low[dim], high[dim]) >= 0 and size > stride:
            operand = DimMapping(dim, length, low=low[dim] // stride)
            factors.append(
                independent(size // stride, [operand, None], [DimMapping(dim, size // stride, inner=stride)])
            )
        elif size > 1:
            factors.append(independent(size, [None, None], [DimMapping(dim, size)]))
    return tuple(factors)


def _pad_tile(tile: Tile) -> list[ir.Value]:
    mapping, (low, high) = result_mapping(tile)
    below, above = (integers(tile.op, name, []) for name in ("edge_padding_low", "edge_padding_high"))
    source = tile.operand_ranges[0]
    if source is None:
        return _pad_tile_of_unsplit(tile, below, above)
    if source[0] >= source[1]:
        return [build.broadcast(tile.operands[1], ir.RankedTensorType(tile.types[0]).shape)]
    stride = mapping.inner
    before = (source[0] - low) * stride + below[mapping.dim] % stride
    after = (high - low) * stride - before - ((source[1] - source[0] - 1) * stride + 1)
    return tile.clone(
        {
            "edge_padding_low": ir.DenseI64ArrayAttr.get(replaced(below, mapping.dim, before)),
            "edge_padding_high": ir.DenseI64ArrayAttr.get(replaced(above, mapping.dim, after)),
        }
    )


def _pad_tile_of_unsplit(tile: Tile, below: list[int], above: list[int]) -> list[ir.Value]:
    """The tile of the padded dimension, read from the unsplit operand; then the padding of the others."""
    mapping, place = result_mapping(tile)
    interior = integers(tile.op, "interior_padding", [])
    value, fill = tile.operands
    start = tile.begin(place)
    padding = (below[mapping.dim], above[mapping.dim], interior[mapping.dim])
    read = read_padded(value, mapping.dim, start, place[1] - place[0], padding, fill)
    names = {"edge_padding_low": below, "edge_padding_high": above, "interior_padding": interior}
    return replace(tile, operands=[read, fill]).clone(
        {name: ir.DenseI64ArrayAttr.get(replaced(numbers, mapping.dim, 0)) for name, numbers in names.items()}
    )


def _pad_ties(site: Site) -> Spoken:
    """The padding is the difference of the sizes."""
    operand, result = (site.classes.places(value) for value in (site.op.operands[0], site.op.results[0]))
    amounts = [integers(site.op, name, []) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    for before, after, *padding in zip(operand, result, *amounts, strict=True):
        if not any(padding):
            site.classes.same(before, after)
            yield from (before, after)
        elif min(padding) >= 0:
            site.classes.bound(after, before, padding[2] + 1)
            yield from (before, after)


def _pad_resize(op: ir.Operation, before: Sequence[Shape]) -> None:
    """The new difference of the sizes, at the ends that had padding."""
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (integers(op, name, []) for name in names)
    operand, _, result = shapes_of(op)
    for dim, (length, size) in enumerate(zip(operand, result, strict=True)):
        if (before[0][dim], before[2][dim]) == (length, size):
            continue
        missing = size - length - max(length - 1, 0) * interior[dim]
        low[dim] = min(low[dim], missing) if high[dim] else missing
        high[dim] = missing - low[dim]
    set_integers(op, names[0], low)
    set_integers(op, names[1], high)


OPS["stablehlo.pad"] = OpDefinition(
    factors=_pad_factors, tile=_pad_tile, ties=_pad_ties, resize=_pad_resize, combination=NONE, reason=""
)


def _concatenate_factors(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Along the concatenated dimension each operand is a part of the result; the others are cut in all."""
    joined = integer(op, "dimension")
    factors = []
    for dim, size in enumerate(shapes.results[0]):
        if size < 2:
            continue
        operands: list[DimMapping | None] = []
        low = 0
        for shape in shapes.operands:
            if dim != joined:
                operands.append(DimMapping(dim, size))
            else:
                operands.append(DimMapping(dim, shape[dim], low=low) if shape[dim] else None)
                low += shape[dim]
        factors.append(independent(size, operands, [DimMapping(dim, size)]))
    return tuple(factors)


def _concatenate_tile(tile: Tile) -> list[ir.Value]:
    """Along the concatenated dimension, only the parts that overlap the tile."""
    mapping, _ = result_mapping(tile)
    if integer(tile.op, "dimension") != mapping.dim:
        return tile.clone()
    met = [
        value for value, place in zip(tile.operands, tile.operand_ranges, strict=True) if place and place[0] < place[1]
    ]
    if len(met) == 1:
        return [met[0]]
    return [stablehlo.ConcatenateOp(met, mapping.dim, results=[tile.types[0]]).result]


def _concatenate_ties(site: Site) -> Spoken:
    """Along the concatenated dimension the result is as long as all operands together."""
    joined, classes = integer(site.op, "dimension"), site.classes
    result = classes.places(site.op.results[0])
    parts = [classes.places(value) for value in site.op.operands]
    for dim, place in enumerate(result):
        dims = [part[dim] for part in parts]
        if dim != joined:
            yield from all_same(site, [*dims, place])
        elif len(dims) == 1:
            yield from all_same(site, [place, dims[0]])
        else:
            classes.relation(sum, [place], dims)
            yield from (place, *dims)


OPS["stablehlo.concatenate"] = OpDefinition(
    factors=_concatenate_factors,
    tile=_concatenate_tile,
    ties=_concatenate_ties,
    resize=NONE,
    combination=NONE,
    reason="",
)
