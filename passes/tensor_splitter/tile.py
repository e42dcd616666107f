"""The op of one tile: the same op on slices, with the attributes that carry shapes or places adapted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, splat_text
from exla_opt.ops.rules import DimMapping, Factor, Kind

from . import accumulate, moves, windows
from .slices import Range, Tile, result_mapping


def build_tile(
    op: ir.Operation,
    factor: Factor,
    operands: Sequence[ir.Value],
    start: ir.Value,
    operand_ranges: Sequence[Range | None],
    result_ranges: Sequence[Range | None],
) -> list[ir.Value]:
    """Make the op for one tile at the current insertion point, and return its results.

    operands: for each mapping of the factor the slice, for the others the whole; for a chained one the value so far.
    start: tensor<i32>, an index of the factor. operand_ranges, result_ranges: the indices of the tile in each
    tensor, counted from `start`; None where there is no mapping. Of a pad whose operand is not in the tile the
    range is empty, and what stands in its place is not read.
    A partial result starts from the monoid's identity, and is float32 where a sum of narrower floats is meant.
    """
    types = [
        _tile_type(result.type, mapping, place)
        for result, mapping, place in zip(op.results, factor.results, result_ranges, strict=True)
    ]
    if factor.kind is Kind.REDUCING:
        types = accumulate.state_types(op, factor)
    tile = Tile(op, factor, operands, start, operand_ranges, result_ranges, tuple(types))
    adapt = _ADAPTED.get(op.name)
    return adapt(tile) if adapt else tile.clone()


def _tile_type(kind: ir.Type, mapping: DimMapping | None, place: Range | None) -> ir.Type:
    if mapping is None or place is None:
        return kind
    tensor = ir.RankedTensorType(kind)
    shape = list(tensor.shape)
    shape[mapping.dim] = (place[1] - place[0]) * mapping.inner
    return build.with_shape(tensor, shape)


def _constant(tile: Tile) -> list[ir.Value]:
    kind = ir.RankedTensorType(tile.types[0])
    if isinstance(kind.element_type, ir.ComplexType):
        text = splat_text(tile.op)
        assert text is not None
        return [build.splat_of_text(kind, text)]
    old = ir.DenseElementsAttr(tile.op.attributes["value"])
    return tile.clone({"value": ir.DenseElementsAttr.get_splat(kind, old.get_splat_value())})


def _iota(tile: Tile) -> list[ir.Value]:
    """Counted in i32 and converted last: a narrow float could not hold the sum."""
    mapping, place = result_mapping(tile)
    if integer(tile.op, "iota_dimension") != mapping.dim:
        return tile.clone()
    kind = ir.RankedTensorType(tile.types[0])
    counting = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_signless(32))
    counted = stablehlo.iota(counting, mapping.dim)
    begin = build.broadcast(tile.begin(place, counting.element_type), kind.shape)
    return [build.convert(stablehlo.add(counted, begin), kind.element_type)]


def _reduce(tile: Tile) -> list[ir.Value]:
    """A partial result starts from the identity, for the init counts once; narrow floats are added in float32."""
    count = len(tile.types)
    operands = list(tile.operands)
    operands[count:] = accumulate.tile_inits(tile.op, operands[count:])
    if tile.factor.kind is not Kind.REDUCING:
        made = replace(tile, operands=operands).clone()
        return accumulate.with_inits(tile.op, list(tile.operands)[count:], operands[count:], made)
    if not accumulate.is_widened(tile.op, tile.factor):
        return replace(tile, operands=operands).clone()
    wide = [build.convert(value, build.wide_float()) for value in operands]
    return accumulate.sum_over(wide, tile.types, tile.op.attributes["dimensions"])


def _top_k(tile: Tile) -> list[ir.Value]:
    """Along the row: the best of the tile (all of a short one), with their places in the whole."""
    if tile.factor.kind is not Kind.REDUCING:
        return tile.clone()
    operand = build.shape_of(tile.operands[0])
    kinds = [ir.RankedTensorType(kind) for kind in tile.types]
    count = min(kinds[0].shape[-1], operand[-1])
    types = tuple(build.with_shape(kind, [*list(kind.shape)[:-1], count]) for kind in kinds)
    k = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    short = replace(tile, types=types)
    values, places = short.clone({"k": k})
    begin = tile.begin(tile.operand_ranges[0], types[1].element_type)
    return [values, stablehlo.add(places, build.broadcast(begin, types[1].shape))]


_ADAPTED: dict[str, Callable[[Tile], list[ir.Value]]] = {
    "chlo.constant": _constant,
    "chlo.top_k": _top_k,
    "stablehlo.concatenate": moves.cut_concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.convolution": windows.cut_convolution,
    "stablehlo.dynamic_slice": moves.cut_dynamic_slice,
    "stablehlo.dynamic_update_slice": moves.cut_dynamic_update_slice,
    "stablehlo.gather": moves.cut_gather,
    "stablehlo.iota": _iota,
    "stablehlo.pad": moves.cut_pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": windows.cut_reduce_window,
    "stablehlo.reverse": moves.cut_reverse,
    "stablehlo.slice": moves.cut_slice,
}
