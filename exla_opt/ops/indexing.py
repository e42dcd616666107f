"""Ops that read or write at positions given by an operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import plain_defining_op

from .definition import NONE, ByShardy, OpDefinition
from .factor import DimMapping, Factor, Kind, Shape, Shapes, independent
from .sizes import set_integers, shapes_of
from .tie import Site, Spoken, all_same, tie, tie_part, tie_parts
from .tile import Range, Tile, replaced, result_mapping

OPS: dict[str, OpDefinition] = {}


def wide_enough(index: ir.Value, start: ir.Value) -> ir.Value:
    """The index in a type that holds every position of the tile: a narrower one than its start would overflow.

    XLA:CPU also clamps it to the last valid position, which the index's own type may not hold.
    """
    element, counting = (ir.IntegerType(build.tensor_of(value).element_type) for value in (index, start))
    return index if element.width >= counting.width else build.convert(index, counting)


def _moved_index(tile: Tile, index: ir.Value, last: int, place: Range | None) -> ir.Value:
    """clamp(index, 0, last) + the start of the tile: XLA clamps the index of the unsplit op, not that of the tile."""
    kind = build.tensor_of(index)
    inside = build.clamp(build.zeros(kind), index, build.splat(kind, last))
    return stablehlo.add(inside, tile.begin(place, kind.element_type))


def _dynamic_slice_factors(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension sliced in full is cut in both; along another one the tile is read from the unsplit operand."""
    starts: list[DimMapping | None] = [None] * (len(shapes.operands) - 1)
    factors = []
    for dim, (size, length) in enumerate(zip(shapes.operands[0], shapes.results[0], strict=True)):
        if length > 1:
            mapping = DimMapping(dim, length)
            factors.append(independent(length, [mapping if size == length else None, *starts], [mapping]))
    return tuple(factors)


def _dynamic_slice_tile(tile: Tile) -> list[ir.Value]:
    mapping, (low, high) = result_mapping(tile)
    lengths = integers(tile.op, "slice_sizes", [])
    operands = [tile.operands[0], *(wide_enough(index, tile.start) for index in tile.operands[1:])]
    start = operands[1 + mapping.dim]
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[mapping.dim] - lengths[mapping.dim]
        operands[1 + mapping.dim] = _moved_index(tile, start, last, (low, high))
    else:  # XLA would add it to the index at which the tile was cut
        operands[1 + mapping.dim] = build.zeros(start.type)
    sizes = replaced(lengths, mapping.dim, high - low)
    operands = _sliced_at_once(operands, sizes)
    return replace(tile, operands=operands).clone({"slice_sizes": ir.DenseI64ArrayAttr.get(sizes)})


def _sliced_at_once(operands: list[ir.Value], sizes: Sequence[int]) -> list[ir.Value]:
    """dynamic_slice(dynamic_slice(x, s), t) = dynamic_slice(x, s and t), if the outer one picks indices of other dims.

    A tile of a table is read before the slice of it, across all that the slice leaves out. Only where one index is
    picked: the table may be computed in tiles, and along a dimension that is sliced in part there would be none. The
    starts must keep their values in the outer type, as each is clamped to its own dimension.
    """
    inner = plain_defining_op(operands[0], "stablehlo.dynamic_slice")
    if inner is None:
        return operands
    whole, part = build.shape_of(inner.operands[0]), build.shape_of(operands[0])
    for before, between, after in zip(whole, part, sizes, strict=True):
        if between != after and (before != between or after != 1):
            return operands
    own, other = (ir.IntegerType(build.tensor_of(starts[1]).element_type) for starts in (operands, inner.operands))
    if own != other and (own.is_unsigned or other.is_unsigned or own.width < other.width):
        return operands
    starts = [
        build.convert(start, own) if before != between else outer
        for before, between, start, outer in zip(whole, part, list(inner.operands)[1:], operands[1:], strict=True)
    ]
    return [inner.operands[0], *starts]


def _dynamic_slice_ties(site: Site) -> Spoken:
    yield from tie_parts(site, site.op.operands[0], site.op.results[0])


def _dynamic_slice_resize(op: ir.Operation, _: Sequence[Shape]) -> None:
    set_integers(op, "slice_sizes", shapes_of(op)[-1])


OPS["stablehlo.dynamic_slice"] = OpDefinition(
    factors=_dynamic_slice_factors,
    tile=_dynamic_slice_tile,
    ties=_dynamic_slice_ties,
    resize=_dynamic_slice_resize,
    combination=NONE,
    reason="",
)


def _dynamic_update_slice_factors(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension that the update fills is cut in all; along another one slices of the update are written in turn."""
    starts: list[DimMapping | None] = [None] * (len(shapes.operands) - 2)
    factors = []
    for dim, (size, length) in enumerate(zip(shapes.operands[0], shapes.operands[1], strict=True)):
        if length < 2:
            continue
        mapping = DimMapping(dim, length)
        if size == length:
            factors.append(independent(length, [mapping, mapping, *starts], [mapping]))
        else:
            factors.append(Factor(Kind.CHAIN, length, (None, mapping, *starts), (None,), (0,)))
    return tuple(factors)


def _dynamic_update_slice_tile(tile: Tile) -> list[ir.Value]:
    operands = [*tile.operands[:2], *(wide_enough(index, tile.start) for index in tile.operands[2:])]
    if tile.factor.kind is not Kind.CHAIN:
        return replace(tile, operands=operands).clone()
    mapping = tile.factor.operands[1]
    assert mapping is not None
    last = build.shape_of(operands[0])[mapping.dim] - mapping.length
    operands[2 + mapping.dim] = _moved_index(tile, operands[2 + mapping.dim], last, tile.operand_ranges[1])
    return replace(tile, operands=operands).clone()


def _dynamic_update_slice_ties(site: Site) -> Spoken:
    operand, update = list(site.op.operands)[:2]
    yield from tie(site, operand, site.op.results[0])
    yield from tie_parts(site, operand, update)


OPS["stablehlo.dynamic_update_slice"] = OpDefinition(
    factors=_dynamic_update_slice_factors,
    tile=_dynamic_update_slice_tile,
    ties=_dynamic_update_slice_ties,
    resize=NONE,
    combination=NONE,
    reason="",
)


def _gather_factors(op: ir.Operation, shapes: Shapes, by_shardy: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Shardy's, and windows that do not fill an indexed dimension: the tile is gathered from start + its offset."""
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = integers(op, "slice_sizes", [])
    factors = []
    for place, dim in zip(numbers.offset_dims, _gather_windows(numbers, len(sizes)), strict=True):
        if 1 < sizes[dim] < shapes.operands[0][dim] and dim in numbers.start_index_map:
            factors.append(independent(sizes[dim], [None, None], [DimMapping(place, sizes[dim])]))
    return (*by_shardy, *factors)


def _gather_windows(numbers: stablehlo.GatherDimensionNumbers, rank: int) -> list[int]:
    """The window dimensions of the operand, in the order of `offset_dims`."""
    without = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    return [dim for dim in range(rank) if dim not in without]


def _gather_tile(tile: Tile) -> list[ir.Value]:
    """A window dimension that the tile cuts is shorter; so is a window read from the middle of the operand."""
    numbers = stablehlo.GatherDimensionNumbers(tile.op.attributes["dimension_numbers"])
    lengths = integers(tile.op, "slice_sizes", [])
    mapping, (low, high) = result_mapping(tile)
    if mapping.dim not in numbers.offset_dims:
        return tile.clone()
    dim = _gather_windows(numbers, len(lengths))[numbers.offset_dims.index(mapping.dim)]
    operands = list(tile.operands)
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[dim] - lengths[dim]
        column = numbers.start_index_map.index(dim)
        indices = wide_enough(operands[1], tile.start)
        operands[1] = _moved_column(tile, indices, numbers.index_vector_dim, column, last, (low, high))
    sizes = ir.DenseI64ArrayAttr.get(replaced(lengths, dim, high - low))
    return replace(tile, operands=operands).clone({"slice_sizes": sizes})


def _moved_column(tile: Tile, indices: ir.Value, vector_dim: int, column: int, last: int, place: Range) -> ir.Value:
    """The indices with one entry of every index vector clamped and moved by the tile's start."""
    shape = build.shape_of(indices)
    if vector_dim == len(shape):
        return _moved_entries(tile, indices, last, place)
    one = list(shape)
    one[vector_dim] = 1
    at = build.scalar_i32(column)
    moved = _moved_entries(tile, build.slice_along(indices, vector_dim, at, 1), last, place)
    return build.update_along(indices, moved, vector_dim, at)


def _moved_entries(tile: Tile, entries: ir.Value, last: int, place: Range) -> ir.Value:
    kind = build.tensor_of(entries)
    number = build.with_shape(kind, [])
    inside = build.clamp(build.zeros(number), entries, build.splat(number, last))
    return stablehlo.add(inside, build.broadcast(tile.begin(place, kind.element_type), kind.shape))


def _gather_ties(site: Site) -> Spoken:
    """Windows are dimensions of the operand or parts of them; along a dimension without a window any row is read."""
    numbers = stablehlo.GatherDimensionNumbers(site.op.attributes["dimension_numbers"])
    (operand, indices), result = site.op.operands, site.op.results[0]
    offset, batching = list(numbers.offset_dims), list(numbers.operand_batching_dims)
    places, read = site.classes.places(operand), site.classes.places(result)
    shape, sizes = site.classes.shape(operand), site.classes.shape(result)
    for dim, at_result in zip(_gather_windows(numbers, len(places)), offset, strict=True):
        yield from tie_part(site, places[dim], read[at_result], (shape[dim], sizes[at_result]))
    yield from (places[dim] for dim in numbers.collapsed_slice_dims)
    counted = [dim for dim in range(len(read)) if dim not in offset]
    yield from tie_indices(site, indices, numbers.index_vector_dim, [read[dim] for dim in counted])
    starts = site.classes.places(indices)
    for dim, at_index in zip(batching, numbers.start_indices_batching_dims, strict=True):
        yield from all_same(site, [places[dim], starts[at_index]])


def tie_indices(site: Site, indices: ir.Value, vector: int, counted: list[int]) -> Spoken:
    """There is a window for each index vector."""
    places = [place for dim, place in enumerate(site.classes.places(indices)) if dim != vector]
    for one, other in zip(places, counted, strict=True):
        yield from all_same(site, [one, other])


def _gather_resize(op: ir.Operation, _: Sequence[Shape]) -> None:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    result = shapes_of(op)[-1]
    sizes = integers(op, "slice_sizes", [])
    for dim, place in zip(_gather_windows(numbers, len(sizes)), numbers.offset_dims, strict=True):
        sizes[dim] = result[place]
    set_integers(op, "slice_sizes", sizes)


OPS["stablehlo.gather"] = OpDefinition(
    factors=ByShardy(adapt=_gather_factors),
    tile=_gather_tile,
    ties=_gather_ties,
    resize=_gather_resize,
    combination=NONE,
    reason="stablehlo.gather may read any row of the dimensions that it indexes",
)
