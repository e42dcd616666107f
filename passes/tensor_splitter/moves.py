"""The tile of an op that moves parts of tensors: its places and lengths are those of the tile."""

from __future__ import annotations

from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ops.rules import Kind

from .slices import Range, Tile, replaced, result_mapping
from .windows import read_padded


def cut_slice(tile: Tile) -> list[ir.Value]:
    """Along a dimension that is read from the whole, the part that the tile spans is cut out first."""
    mapping, (low, high) = result_mapping(tile)
    starts, strides = (integers(tile.op, name, []) for name in ("start_indices", "strides"))
    stride = strides[mapping.dim]
    source = tile.operand_ranges[0]
    operands = list(tile.operands)
    spanned = (high - low - 1) * stride + 1
    if source is None:
        place = stablehlo.multiply(tile.begin((low, high), ir.IntegerType.get_signless(32)), build.scalar_i32(stride))
        first = stablehlo.add(place, build.scalar_i32(starts[mapping.dim]))
        operands[0] = build.slice_along(operands[0], mapping.dim, first, spanned)
    begin = 0 if source is None else (low - source[0]) * stride + starts[mapping.dim] % stride
    limits = integers(tile.op, "limit_indices", [])
    return replace(tile, operands=operands).clone(
        {
            "start_indices": ir.DenseI64ArrayAttr.get(replaced(starts, mapping.dim, begin)),
            "limit_indices": ir.DenseI64ArrayAttr.get(replaced(limits, mapping.dim, begin + spanned)),
        }
    )


def cut_pad(tile: Tile) -> list[ir.Value]:
    mapping, (low, high) = result_mapping(tile)
    below, above = (integers(tile.op, name, []) for name in ("edge_padding_low", "edge_padding_high"))
    source = tile.operand_ranges[0]
    if source is None:
        return _cut_whole_pad(tile, below, above)
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


def _cut_whole_pad(tile: Tile, below: list[int], above: list[int]) -> list[ir.Value]:
    """The tile of the dimension padded, read from the whole operand; then the padding of the others."""
    mapping, place = result_mapping(tile)
    interior = integers(tile.op, "interior_padding", [])
    value, fill = tile.operands
    start = tile.begin(place, ir.IntegerType.get_signless(32))
    padding = (below[mapping.dim], above[mapping.dim], interior[mapping.dim])
    read = read_padded(value, mapping.dim, start, place[1] - place[0], padding, fill)
    names = {"edge_padding_low": below, "edge_padding_high": above, "interior_padding": interior}
    return replace(tile, operands=[read, fill]).clone(
        {name: ir.DenseI64ArrayAttr.get(replaced(numbers, mapping.dim, 0)) for name, numbers in names.items()}
    )


def cut_concatenate(tile: Tile) -> list[ir.Value]:
    """Along the joined dimension only the parts that the tile meets."""
    mapping, _ = result_mapping(tile)
    if integer(tile.op, "dimension") != mapping.dim:
        return tile.clone()
    met = [
        value for value, place in zip(tile.operands, tile.operand_ranges, strict=True) if place and place[0] < place[1]
    ]
    if len(met) == 1:
        return [met[0]]
    return [stablehlo.ConcatenateOp(met, mapping.dim, results=[tile.types[0]]).result]


def cut_reverse(tile: Tile) -> list[ir.Value]:
    """Result [a, b) of a dimension that is turned round is operand [n - b, n - a) turned round."""
    mapping, place = result_mapping(tile)
    if tile.factor.operands[0] is not None:
        return tile.clone()
    length = place[1] - place[0]
    begin = tile.begin(place, ir.IntegerType.get_signless(32))
    from_end = stablehlo.subtract(build.scalar_i32(mapping.length - length), begin)
    part = build.slice_along(tile.operands[0], mapping.dim, from_end, length)
    return replace(tile, operands=[part]).clone()


def _room_to_move(index: ir.Value) -> ir.Value:
    """The index in a type that holds every place of the tile: one of 8 or 16 bits would overflow.

    XLA:CPU also clamps it by the last place that there is, which the index's own type may not hold.
    """
    element = ir.IntegerType(build.tensor_of(index).element_type)
    return index if element.width >= 32 else build.convert(index, ir.IntegerType.get_signless(32))


def _moved_index(tile: Tile, index: ir.Value, last: int, place: Range | None) -> ir.Value:
    """clamp(index, 0, last) + the place of the tile: XLA clamps the index of the whole, not that of the tile."""
    kind = build.tensor_of(index)
    inside = build.clamp(build.zeros(kind), index, build.splat(kind, last))
    return stablehlo.add(inside, tile.begin(place, kind.element_type))


def cut_dynamic_slice(tile: Tile) -> list[ir.Value]:
    mapping, (low, high) = result_mapping(tile)
    lengths = integers(tile.op, "slice_sizes", [])
    operands = [tile.operands[0], *map(_room_to_move, tile.operands[1:])]
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[mapping.dim] - lengths[mapping.dim]
        operands[1 + mapping.dim] = _moved_index(tile, operands[1 + mapping.dim], last, (low, high))
    sizes = ir.DenseI64ArrayAttr.get(replaced(lengths, mapping.dim, high - low))
    return replace(tile, operands=operands).clone({"slice_sizes": sizes})


def cut_dynamic_update_slice(tile: Tile) -> list[ir.Value]:
    operands = [*tile.operands[:2], *map(_room_to_move, tile.operands[2:])]
    if tile.factor.kind is not Kind.CHAIN:
        return replace(tile, operands=operands).clone()
    mapping = tile.factor.operands[1]
    assert mapping is not None
    last = build.shape_of(operands[0])[mapping.dim] - mapping.length
    operands[2 + mapping.dim] = _moved_index(tile, operands[2 + mapping.dim], last, tile.operand_ranges[1])
    return replace(tile, operands=operands).clone()


def cut_gather(tile: Tile) -> list[ir.Value]:
    """A window dimension that the tile cuts is shorter; so is a window read from the middle of the operand."""
    numbers = stablehlo.GatherDimensionNumbers(tile.op.attributes["dimension_numbers"])
    lengths = integers(tile.op, "slice_sizes", [])
    mapping, (low, high) = result_mapping(tile)
    if mapping.dim not in numbers.offset_dims:
        return tile.clone()
    without = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    dim = [dim for dim in range(len(lengths)) if dim not in without][numbers.offset_dims.index(mapping.dim)]
    operands = list(tile.operands)
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[dim] - lengths[dim]
        column = numbers.start_index_map.index(dim)
        indices = _room_to_move(operands[1])
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
    inside = build.clamp(
        build.zeros(build.with_shape(kind, [])), entries, build.splat(build.with_shape(kind, []), last)
    )
    return stablehlo.add(inside, build.broadcast(tile.begin(place, kind.element_type), kind.shape))
