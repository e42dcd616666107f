"""Ops that write at many positions given by an operand."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

from .definition import NONE, ByShardy, Combination, OpDefinition
from .factor import DimMapping, Factor, Kind, Shapes, independent
from .indexing import tie_indices, wide_enough
from .reducers import body_of, componentwise, rounds
from .tie import Site, Spoken, all_same, tie, tie_part
from .tile import Tile, replaced

OPS: dict[str, OpDefinition] = {}


def _scatter_factors(op: ir.Operation, shapes: Shapes, by_shardy: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Windows, indexed dimensions, and slices of the updates written in turn: `([k,j],[i,1],[i,j])->([k,j])`.

    Of Shardy's factors, those that also cut the updates. An inserted dimension, like k, is only addressed by the
    indices: each slice goes through all updates, and those of other slices are out of its bounds, where nothing is
    written. Along i a scatter is a chain: only the major one of several update dimensions keeps the order of writes;
    with an order-independent body each may be cut.
    """
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(shapes.results)
    factors = [f for f in by_shardy if f.kind is Kind.INDEPENDENT and f.operands[0] and f.operands[count + 1]]
    if _index_vectors(op.operands[count], numbers.index_vector_dim) == 1:
        named = numbers.scattered_dims_to_operand_dims  # see NOTE [One update outside of a tile]
        factors = [f for f in factors if f.operands[0] and f.operands[0].dim not in named]
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

    The same holds for a tile that is a part of an indexed dimension, whose indices count from the tile's start.
    """
    numbers = stablehlo.ScatterDimensionNumbers(tile.op.attributes["scatter_dimension_numbers"])
    at = len(tile.op.results)
    mapping = tile.factor.results[0]
    is_indexed = mapping is not None and mapping.dim in numbers.inserted_window_dims
    if tile.factor.operands[at] is None and not is_indexed:
        return tile.clone()
    indices = wide_enough(tile.operands[at], tile.start)
    if mapping is None or not is_indexed:
        return replace(tile, operands=replaced(tile.operands, at, indices)).clone()
    column = numbers.scattered_dims_to_operand_dims.index(mapping.dim)
    indices = _counted_from(tile, indices, numbers.index_vector_dim, column)
    if _index_vectors(indices, numbers.index_vector_dim) != 1:
        return replace(tile, operands=replaced(tile.operands, at, indices)).clone()
    return _one_update(tile, indices, numbers.index_vector_dim, column)


def _index_vectors(indices: ir.Value, vector_dim: int) -> int:
    return prod(size for dim, size in enumerate(build.shape_of(indices)) if dim != vector_dim)


def _one_update(tile: Tile, indices: ir.Value, vector_dim: int, column: int) -> list[ir.Value]:
    """The tile of a scatter of one index vector, of which one entry counts from the tile's start.

    NOTE [One update outside of a tile]

    XLA:CPU expands a scatter of one update to a read, a select and a dynamic_update_slice, all at the given index: if
    it is out of bounds, read and write are clamped alike, and nothing changes. But if the operand is a dynamic_slice,
    the tile of an argument, it reads from the argument at the sum of both indices, without clamping the second one:
    another row is written into the tile. So the index is clamped here, and the result of such a write is not selected.
    """
    place, count = tile.result_ranges[0], len(tile.op.results)
    assert place is not None
    several, at = prod(build.shape_of(indices)) > 1, build.scalar_i32(column)
    entry = build.slice_along(indices, vector_dim, at, 1) if several else indices
    number = build.with_shape(build.tensor_of(entry), [])
    nearest = build.clamp(build.zeros(number), entry, build.splat(number, place[1] - place[0] - 1))
    moved = build.update_along(indices, nearest, vector_dim, at) if several else nearest
    written = replace(tile, operands=replaced(tile.operands, count, moved)).clone()
    inside = stablehlo.compare(entry, nearest, stablehlo.ComparisonDirectionAttr.get("EQ"))
    chosen = stablehlo.reshape(build.with_shape(build.tensor_of(inside), []), inside)
    return [stablehlo.select(chosen, new, old) for new, old in zip(written, tile.operands[:count], strict=True)]


def _counted_from(tile: Tile, indices: ir.Value, vector_dim: int, column: int) -> ir.Value:
    """The indices with one entry of every index vector counted from the tile's start in the results.

    Indices outside of the tile stay outside, for all integers: a difference that wraps around is further from zero than
    any tensor is long.
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
    yield from tie_indices(site, indices, numbers.index_vector_dim, counted)
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
