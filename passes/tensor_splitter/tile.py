"""The op of one tile: the same op on slices, with the attributes that carry shapes or places adapted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.factors import Factor, Kind, Slot
from exla_opt.analysis.op_rules.attributes import integer, integers, splat_text
from exla_opt.ir import build

from . import accumulate

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Tile:
    """What `build_tile` was asked for, and the result types that follow from it."""

    op: ir.Operation
    factor: Factor
    operands: Sequence[ir.Value]
    start: ir.Value
    operand_ranges: Sequence[Range | None]
    result_ranges: Sequence[Range | None]
    types: tuple[ir.Type, ...]

    def clone(self, attributes: dict[str, ir.Attribute] | None = None) -> list[ir.Value]:
        """The op itself on the tile's operands; attributes: those that are not the original's."""
        made = self.op.clone(ip=ir.InsertionPoint.current).operation
        for index, value in enumerate(self.operands):
            made.operands[index] = value
        for result, kind in zip(made.results, self.types, strict=True):
            result.set_type(kind)
        # A sharding rule tells the sizes of the whole, and nothing would notice that it is stale.
        if "sdy.sharding_rule" in made.attributes:
            del made.attributes["sdy.sharding_rule"]
        for name, attribute in (attributes or {}).items():
            made.attributes[name] = attribute
        return list(made.results)

    def begin(self, place: Range | None, element: ir.Type) -> ir.Value:
        """The factor's index at which a range begins, as a 0-d tensor of integers."""
        low = place[0] if place else 0
        shifted = stablehlo.add(self.start, build.scalar_i32(low)) if low else self.start
        return build.convert(shifted, element)


def build_tile(
    op: ir.Operation,
    factor: Factor,
    operands: Sequence[ir.Value],
    start: ir.Value,
    operand_ranges: Sequence[Range | None],
    result_ranges: Sequence[Range | None],
) -> list[ir.Value]:
    """Make the op for one tile at the current insertion point, and return its results.

    operands: for each slot of the factor the slice, for the others the whole; for a chained one the value so far.
    start: tensor<i32>, an index of the factor. operand_ranges, result_ranges: the indices of the tile in each
    tensor, counted from `start`; None where there is no slot. Of a pad whose operand is not in the tile the
    range is empty, and what stands in its place is not read.
    A partial result starts from the monoid's identity, and is float32 where a sum of narrower floats is meant.
    """
    types = [
        _tile_type(result.type, slot, place)
        for result, slot, place in zip(op.results, factor.results, result_ranges, strict=True)
    ]
    if factor.kind is Kind.REDUCING:
        types = accumulate.state_types(op, factor)
    tile = _Tile(op, factor, operands, start, operand_ranges, result_ranges, tuple(types))
    adapt = _ADAPTED.get(op.name)
    return adapt(tile) if adapt else tile.clone()


def _tile_type(kind: ir.Type, slot: Slot | None, place: Range | None) -> ir.Type:
    if slot is None or place is None:
        return kind
    tensor = ir.RankedTensorType(kind)
    shape = list(tensor.shape)
    shape[slot.dim] = (place[1] - place[0]) * slot.inner
    return build.with_shape(tensor, shape)


def _result_slot(tile: _Tile) -> tuple[Slot, Range]:
    """Where the factor stands in the only result, and the tile's indices in it."""
    slot, place = tile.factor.results[0], tile.result_ranges[0]
    assert slot is not None and place is not None
    return slot, place


def _replaced(numbers: Sequence[int], dim: int, number: int) -> list[int]:
    return [*numbers[:dim], number, *numbers[dim + 1 :]]


def _slice(tile: _Tile) -> list[ir.Value]:
    slot, (low, high) = _result_slot(tile)
    source = tile.operand_ranges[0]
    assert source is not None
    starts, strides = (integers(tile.op, name, []) for name in ("start_indices", "strides"))
    stride = strides[slot.dim]
    first = (low - source[0]) * stride + starts[slot.dim] % stride
    limit = first + (high - low - 1) * stride + 1
    limits = integers(tile.op, "limit_indices", [])
    return tile.clone(
        {
            "start_indices": ir.DenseI64ArrayAttr.get(_replaced(starts, slot.dim, first)),
            "limit_indices": ir.DenseI64ArrayAttr.get(_replaced(limits, slot.dim, limit)),
        }
    )


def _pad(tile: _Tile) -> list[ir.Value]:
    slot, (low, high) = _result_slot(tile)
    source = tile.operand_ranges[0]
    assert source is not None
    if source[0] >= source[1]:
        return [build.broadcast(tile.operands[1], ir.RankedTensorType(tile.types[0]).shape)]
    below, above = (integers(tile.op, name, []) for name in ("edge_padding_low", "edge_padding_high"))
    stride = slot.inner
    before = (source[0] - low) * stride + below[slot.dim] % stride
    after = (high - low) * stride - before - ((source[1] - source[0] - 1) * stride + 1)
    return tile.clone(
        {
            "edge_padding_low": ir.DenseI64ArrayAttr.get(_replaced(below, slot.dim, before)),
            "edge_padding_high": ir.DenseI64ArrayAttr.get(_replaced(above, slot.dim, after)),
        }
    )


def _concatenate(tile: _Tile) -> list[ir.Value]:
    """Along the joined dimension only the parts that the tile meets."""
    slot, _ = _result_slot(tile)
    if integer(tile.op, "dimension") != slot.dim:
        return tile.clone()
    met = [
        value for value, place in zip(tile.operands, tile.operand_ranges, strict=True) if place and place[0] < place[1]
    ]
    if len(met) == 1:
        return [met[0]]
    return [stablehlo.ConcatenateOp(met, slot.dim, results=[tile.types[0]]).result]


def _reverse(tile: _Tile) -> list[ir.Value]:
    """Result [a, b) of a dimension that is turned round is operand [n - b, n - a) turned round."""
    slot, place = _result_slot(tile)
    if tile.factor.operands[0] is not None:
        return tile.clone()
    length = place[1] - place[0]
    begin = tile.begin(place, ir.IntegerType.get_signless(32))
    from_end = stablehlo.subtract(build.scalar_i32(slot.length - length), begin)
    part = build.slice_along(tile.operands[0], slot.dim, from_end, length)
    return _with_operands(tile, [part]).clone()


def _moved_index(tile: _Tile, index: ir.Value, last: int, place: Range | None) -> ir.Value:
    """clamp(index, 0, last) + the place of the tile: XLA clamps the index of the whole, not that of the tile."""
    kind = build.tensor_of(index)
    inside = build.clamp(build.zeros(kind), index, build.splat(kind, last))
    return stablehlo.add(inside, tile.begin(place, kind.element_type))


def _dynamic_slice(tile: _Tile) -> list[ir.Value]:
    slot, (low, high) = _result_slot(tile)
    lengths = integers(tile.op, "slice_sizes", [])
    operands = list(tile.operands)
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[slot.dim] - lengths[slot.dim]
        operands[1 + slot.dim] = _moved_index(tile, operands[1 + slot.dim], last, (low, high))
    sizes = ir.DenseI64ArrayAttr.get(_replaced(lengths, slot.dim, high - low))
    return _with_operands(tile, operands).clone({"slice_sizes": sizes})


def _dynamic_update_slice(tile: _Tile) -> list[ir.Value]:
    if tile.factor.kind is not Kind.CHAIN:
        return tile.clone()
    slot = tile.factor.operands[1]
    assert slot is not None
    operands = list(tile.operands)
    last = build.shape_of(operands[0])[slot.dim] - slot.length
    operands[2 + slot.dim] = _moved_index(tile, operands[2 + slot.dim], last, tile.operand_ranges[1])
    return _with_operands(tile, operands).clone()


def _with_operands(tile: _Tile, operands: list[ir.Value]) -> _Tile:
    return _Tile(tile.op, tile.factor, operands, tile.start, tile.operand_ranges, tile.result_ranges, tile.types)


def _gather(tile: _Tile) -> list[ir.Value]:
    """A window dimension that the tile cuts is shorter; so is a window read from the middle of the operand."""
    numbers = stablehlo.GatherDimensionNumbers(tile.op.attributes["dimension_numbers"])
    lengths = integers(tile.op, "slice_sizes", [])
    slot, (low, high) = _result_slot(tile)
    if slot.dim not in numbers.offset_dims:
        return tile.clone()
    without = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    dim = [dim for dim in range(len(lengths)) if dim not in without][numbers.offset_dims.index(slot.dim)]
    operands = list(tile.operands)
    if tile.factor.operands[0] is None:
        last = build.shape_of(operands[0])[dim] - lengths[dim]
        column = numbers.start_index_map.index(dim)
        operands[1] = _moved_column(tile, operands[1], numbers.index_vector_dim, column, last, (low, high))
    sizes = ir.DenseI64ArrayAttr.get(_replaced(lengths, dim, high - low))
    return _with_operands(tile, operands).clone({"slice_sizes": sizes})


def _moved_column(tile: _Tile, indices: ir.Value, vector_dim: int, column: int, last: int, place: Range) -> ir.Value:
    """The indices with one entry of every index vector clamped and moved to the tile's place."""
    shape = build.shape_of(indices)
    if vector_dim == len(shape):
        return _moved_entries(tile, indices, last, place)
    one = list(shape)
    one[vector_dim] = 1
    at = build.scalar_i32(column)
    moved = _moved_entries(tile, build.slice_along(indices, vector_dim, at, 1), last, place)
    return build.update_along(indices, moved, vector_dim, at)


def _moved_entries(tile: _Tile, entries: ir.Value, last: int, place: Range) -> ir.Value:
    kind = build.tensor_of(entries)
    inside = build.clamp(
        build.zeros(build.with_shape(kind, [])), entries, build.splat(build.with_shape(kind, []), last)
    )
    return stablehlo.add(inside, build.broadcast(tile.begin(place, kind.element_type), kind.shape))


def _convolution(tile: _Tile) -> list[ir.Value]:
    """Where groups are cut, the tile has fewer of them."""
    numbers = stablehlo.ConvDimensionNumbers(tile.op.attributes["dimension_numbers"])
    left, kernel = tile.factor.operands
    if left is None or kernel is None or kernel.dim != numbers.kernel_output_feature_dimension:
        return tile.clone()
    by_feature = left.dim == numbers.input_feature_dimension
    name = "feature_group_count" if by_feature else "batch_group_count"
    place = tile.operand_ranges[0]
    assert place is not None and integer(tile.op, name) == tile.factor.size
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place[1] - place[0])
    return tile.clone({name: count})


def _constant(tile: _Tile) -> list[ir.Value]:
    kind = ir.RankedTensorType(tile.types[0])
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(tile.op)
        assert text is not None
        return [build.splat_of_text(kind, text)]
    old = ir.DenseElementsAttr(tile.op.attributes["value"])
    return tile.clone({"value": ir.DenseElementsAttr.get_splat(kind, old.get_splat_value())})


def _iota(tile: _Tile) -> list[ir.Value]:
    """Counted in i32 and converted last: a narrow float could not hold the sum."""
    slot, place = _result_slot(tile)
    if integer(tile.op, "iota_dimension") != slot.dim:
        return tile.clone()
    kind = ir.RankedTensorType(tile.types[0])
    counting = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_signless(32))
    counted = stablehlo.iota(counting, slot.dim)
    begin = build.broadcast(tile.begin(place, counting.element_type), kind.shape)
    return [build.convert(stablehlo.add(counted, begin), kind.element_type)]


def _reduce(tile: _Tile) -> list[ir.Value]:
    """A partial result starts from the identity, for the init counts once; narrow floats are added in float32."""
    if tile.factor.kind is not Kind.REDUCING:
        return tile.clone()
    count = len(tile.types)
    operands = list(tile.operands)
    operands[count:] = accumulate.tile_inits(tile.op, operands[count:])
    if not accumulate.is_widened(tile.op, tile.factor):
        return _with_operands(tile, operands).clone()
    wide = [build.convert(value, build.wide_float()) for value in operands]
    return accumulate.sum_over(wide, tile.types, tile.op.attributes["dimensions"])


def _top_k(tile: _Tile) -> list[ir.Value]:
    """Along the row: the best of the tile (all of a short one), with their places in the whole."""
    if tile.factor.kind is not Kind.REDUCING:
        return tile.clone()
    operand = build.shape_of(tile.operands[0])
    kinds = [ir.RankedTensorType(kind) for kind in tile.types]
    count = min(kinds[0].shape[-1], operand[-1])
    types = tuple(build.with_shape(kind, [*list(kind.shape)[:-1], count]) for kind in kinds)
    k = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    short = _Tile(tile.op, tile.factor, tile.operands, tile.start, tile.operand_ranges, tile.result_ranges, types)
    values, places = short.clone({"k": k})
    begin = tile.begin(tile.operand_ranges[0], types[1].element_type)
    return [values, stablehlo.add(places, build.broadcast(begin, types[1].shape))]


_ADAPTED: dict[str, Callable[[_Tile], list[ir.Value]]] = {
    "chlo.constant": _constant,
    "chlo.top_k": _top_k,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
}
