"""Ops that read or write at places that an operand names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers

from .definition import NONE, ByShardy, Combination, OpDefinition
from .factor import DimMapping, Factor, Kind, Shape, Shapes, independent
from .reducers import body_of, componentwise, rounds
from .sizes import set_integers, shapes_of
from .tie import Site, Spoken, all_same, tie, tie_part, tie_parts
from .tile import Range, Tile, replaced, result_mapping

OPS: dict[str, OpDefinition] = {}


def _wide_enough(index: ir.Value) -> ir.Value:
    """The index in a type that holds every place of the tile: one of 8 or 16 bits would overflow.

    XLA:CPU also clamps it by the last place that there is, which the index's own type may not hold.
    """
    element = ir.IntegerType(build.tensor_of(index).element_type)
    return index if element.width >= 32 else build.convert(index, ir.IntegerType.get_signless(32))


def _moved_index(tile: Tile, index: ir.Value, last: int, place: Range | None) -> ir.Value:
    """clamp(index, 0, last) + the place of the tile: XLA clamps the index of the unsplit op, not that of the tile."""
    kind = build.tensor_of(index)
    inside = build.clamp(build.zeros(kind), index, build.splat(kind, last))
    return stablehlo.add(inside, tile.begin(place, kind.element_type))


def _dynamic_slice_factors(_: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """A dimension taken in full is cut in both; of another one the tile is read from the unsplit operand."""
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
    operands = [tile.operands[0], *map(_wide_enough, tile.operands[1:])]
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[mapping.dim] - lengths[mapping.dim]
        operands[1 + mapping.dim] = _moved_index(tile, operands[1 + mapping.dim], last, (low, high))
    sizes = ir.DenseI64ArrayAttr.get(replaced(lengths, mapping.dim, high - low))
    return replace(tile, operands=operands).clone({"slice_sizes": sizes})


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
    operands = [*tile.operands[:2], *map(_wide_enough, tile.operands[2:])]
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
    """Shardy's, and windows that do not fill an indexed dimension: the tile is gathered from start + its place."""
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = integers(op, "slice_sizes", [])
    factors = []
    for place, dim in zip(numbers.offset_dims, _gather_windows(numbers, len(sizes)), strict=True):
        if 1 < sizes[dim] < shapes.operands[0][dim] and dim in numbers.start_index_map:
            factors.append(independent(sizes[dim], [None, None], [DimMapping(place, sizes[dim])]))
    return (*by_shardy, *factors)


def _gather_windows(numbers: stablehlo.GatherDimensionNumbers, rank: int) -> list[int]:
    """The dimensions of the operand that the windows have, in the order of `offset_dims`."""
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
        indices = _wide_enough(operands[1])
        operands[1] = _moved_column(tile, indices, numbers.index_vector_dim, column, last, (low, high))
    sizes = ir.DenseI64ArrayAttr.get(replaced(lengths, dim, high - low))
    return replace(tile, operands=operands).clone({"slice_sizes": sizes})


def _moved_column(tile: Tile, indices: ir.Value, vector_dim: int, column: int, last: int, place: Range) -> ir.Value:
    """The indices with one entry of every index vector clamped and moved to the tile's place."""
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
    """Windows are dimensions of the operand or parts of them; of a dimension without a window any row is read."""
    numbers = stablehlo.GatherDimensionNumbers(site.op.attributes["dimension_numbers"])
    (operand, indices), result = site.op.operands, site.op.results[0]
    offset, batching = list(numbers.offset_dims), list(numbers.operand_batching_dims)
    places, read = site.classes.places(operand), site.classes.places(result)
    shape, sizes = site.classes.shape(operand), site.classes.shape(result)
    for dim, at_result in zip(_gather_windows(numbers, len(places)), offset, strict=True):
        yield from tie_part(site, places[dim], read[at_result], (shape[dim], sizes[at_result]))
    yield from (places[dim] for dim in numbers.collapsed_slice_dims)
    counted = [dim for dim in range(len(read)) if dim not in offset]
    yield from _tie_indices(site, indices, numbers.index_vector_dim, [read[dim] for dim in counted])
    starts = site.classes.places(indices)
    for dim, at_index in zip(batching, numbers.start_indices_batching_dims, strict=True):
        yield from all_same(site, [places[dim], starts[at_index]])


def _tie_indices(site: Site, indices: ir.Value, vector: int, counted: list[int]) -> Spoken:
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


def _scatter_factors(op: ir.Operation, shapes: Shapes, by_shardy: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Windows, indexed dimensions, and slices of the updates written in turn: `([k,j],[i,1],[i,j])->([k,j])`.

    Of Shardy's factors those that also cut the updates. An inserted dimension, as k, is only named by the indices: each
    slice goes through all updates, and those of other slices lie outside of it, where nothing is written. Along i a
    scatter is a chain: only the major one of several update dimensions keeps the order of writes; a body that does not
    mind the order may be cut along each.
    """
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(shapes.results)
    factors = [f for f in by_shardy if f.kind is Kind.INDEPENDENT and f.operands[0] and f.operands[count + 1]]
    for dim in sorted({*numbers.inserted_window_dims} & {*numbers.scattered_dims_to_operand_dims}):
        size = shapes.results[0][dim]
        if size > 1:
            cut = [DimMapping(dim, size)] * count
            factors.append(independent(size, [*cut, *[None] * (1 + count)], cut))
    indices = [dim for dim in range(len(shapes.operands[count])) if dim != numbers.index_vector_dim]
    updates = [dim for dim in range(len(shapes.operands[-1])) if dim not in numbers.update_window_dims]
    any_order = componentwise(body_of(op)) is not None
    for at_index, at_update in zip(indices, updates, strict=True):
        size = shapes.operands[-1][at_update]
        if size < 2 or at_index in numbers.scatter_indices_batching_dims:
            continue
        mappings = (DimMapping(at_index, size), *[DimMapping(at_update, size)] * count)
        factors.append(Factor(Kind.CHAIN, size, (*[None] * count, *mappings), (None,) * count, tuple(range(count))))
        if not any_order:
            break
    return tuple(factors)


def _scatter_tile(tile: Tile) -> list[ir.Value]:
    """Updates written in turn: a tile may hold one alone, which XLA:CPU checks by a bound in the index's own type.

    So it does where the tile is a part of an indexed dimension, whose indices are counted from where the tile begins.
    """
    numbers = stablehlo.ScatterDimensionNumbers(tile.op.attributes["scatter_dimension_numbers"])
    at = len(tile.op.results)
    mapping = tile.factor.results[0]
    is_indexed = mapping is not None and mapping.dim in numbers.inserted_window_dims
    if tile.factor.operands[at] is None and not is_indexed:
        return tile.clone()
    indices = _wide_enough(tile.operands[at])
    if mapping is not None and is_indexed:
        column = numbers.scattered_dims_to_operand_dims.index(mapping.dim)
        indices = _counted_from(tile, indices, numbers.index_vector_dim, column)
    return replace(tile, operands=[*tile.operands[:at], indices, *tile.operands[at + 1 :]]).clone()


def _counted_from(tile: Tile, indices: ir.Value, vector_dim: int, column: int) -> ir.Value:
    """The indices with one entry of every index vector counted from where the tile begins in the results.

    What lies outside of the tile stays outside, whatever the integers: a difference that wraps round is further from
    zero than any tensor is long.
    """
    kind = build.tensor_of(indices)
    begin = tile.begin(tile.result_ranges[0], kind.element_type)
    one = [size if dim != vector_dim else 1 for dim, size in enumerate(kind.shape)]
    before = build.broadcast(begin, one)
    if one != list(kind.shape):
        before = build.update_along(build.zeros(kind), before, vector_dim, build.scalar_i32(column))
    return stablehlo.subtract(indices, before)


def _scatter_ties(site: Site) -> Spoken:
    numbers = stablehlo.ScatterDimensionNumbers(site.op.attributes["scatter_dimension_numbers"])
    count = len(site.op.results)
    operands = list(site.op.operands)
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    yield from tie(site, *inputs, *site.op.results)
    yield from tie(site, *updates)
    places, written = site.classes.places(inputs[0]), site.classes.places(updates[0])
    shape, sizes = site.classes.shape(inputs[0]), site.classes.shape(updates[0])
    batching = list(numbers.input_batching_dims)
    without = {*numbers.inserted_window_dims, *batching}
    windows = [dim for dim in range(len(places)) if dim not in without]
    for dim, at_update in zip(windows, numbers.update_window_dims, strict=True):
        yield from tie_part(site, places[dim], written[at_update], (shape[dim], sizes[at_update]))
    counted = [place for dim, place in enumerate(written) if dim not in list(numbers.update_window_dims)]
    yield from _tie_indices(site, indices, numbers.index_vector_dim, counted)
    starts = site.classes.places(indices)
    for dim, at_index in zip(batching, numbers.scatter_indices_batching_dims, strict=True):
        yield from all_same(site, [places[dim], starts[at_index]])


OPS["stablehlo.scatter"] = OpDefinition(
    factors=ByShardy(adapt=_scatter_factors),
    tile=_scatter_tile,
    ties=_scatter_ties,
    resize=NONE,
    # Sums and products may be cut along a minor dimension too, which changes the order of the writes.
    combination=Combination(
        initial=NONE,
        combine=NONE,
        resume=NONE,
        widens=NONE,
        converts=False,
        reassociates=lambda op, kind: kind is Kind.CHAIN and rounds(body_of(op)),
    ),
    reason="stablehlo.scatter may write any row of the dimensions that it indexes",
)
