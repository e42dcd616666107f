"""Slices, pads and concatenations along the cut dimension, as shifts: each part of the result is a part of an operand.

    p = pad(u, 1, 1); p[2:] + p[:-2]      v = concatenate(u[n - 1:], u[:n - 1])      d = u[1:] - u[:-1]

A tile of the result reads a tile of each operand, shifted by a few elements. So successive finite differences are cut
together, in tiles that overlap (see `overlaps.py`). All tensors of such a region are aligned at their starts, whatever
their length: element i of `d` above is index i, computed from indices i and i + 1 of `u`. A short part of an end, like
the last row that `concatenate` puts first, is aligned with that end.

Tile elements beyond the ends of a tensor are never used: a reader that crosses an end uses another part there, or the
padding value. Only if a part comes from the other end, as in a roll, the elements beyond an end are the tensor's own
from the other end: it has a period, the number of the result's elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import defining_op, splat_value

from .factor import DimMapping, Factor, Kind, Shape
from .tile import Tile, replaced, result_mapping

_SLICE, _PAD, _UPDATE = "stablehlo.slice", "stablehlo.pad", "stablehlo.dynamic_update_slice"
# Parts that are shifted by more than this fraction of the longest tensor are no finite difference.
_LEAST_PART = 8


@dataclass(frozen=True, slots=True)
class Part:
    """Elements [start, stop) of a dimension of the result are [start + by, stop + by) of operand number `operand`."""

    operand: int
    start: int
    stop: int
    by: int


def _parts_of_slice(op: ir.Operation, operands: Sequence[Shape], result: Shape, dim: int) -> tuple[Part, ...] | None:
    if integers(op, "strides", [])[dim] != 1:
        return None
    return (Part(0, 0, result[dim], integers(op, "start_indices", [])[dim]),)


def _parts_of_pad(op: ir.Operation, operands: Sequence[Shape], result: Shape, dim: int) -> tuple[Part, ...] | None:
    if integers(op, "interior_padding", [])[dim]:
        return None
    low = integers(op, "edge_padding_low", [])[dim]
    start, stop = max(low, 0), min(low + operands[0][dim], result[dim])
    return (Part(0, start, stop, -low),) if start < stop else None


def _parts_of_join(op: ir.Operation, operands: Sequence[Shape], result: Shape, dim: int) -> tuple[Part, ...] | None:
    if integer(op, "dimension") != dim:
        return None
    parts, start = [], 0
    for index, shape in enumerate(operands):
        parts.append(Part(index, start, start + shape[dim], -start))
        start += shape[dim]
    return tuple(part for part in parts if part.start < part.stop)


def _parts_of_update(op: ir.Operation, operands: Sequence[Shape], result: Shape, dim: int) -> tuple[Part, ...] | None:
    """The entire operand, and the update at its position; the later part overwrites the earlier one."""
    size, length = result[dim], operands[1][dim]
    if length == size or 0 in operands[1] or not all(map(_is_known, list(op.operands)[2:])):
        return None
    start = _updated_at(op, dim)
    return Part(0, 0, size, 0), Part(1, start, start + length, -start)


def _is_known(index: ir.Value) -> bool:
    """Whether an index is a known number, in a type that XLA reads correctly: it reads a ui8 as an i8."""
    kind = build.tensor_of(index).element_type
    return isinstance(kind, ir.IntegerType) and kind.width >= 32 and isinstance(splat_value(index), int)


def _updated_at(op: ir.Operation, dim: int) -> int:
    """The first element along a dimension that a dynamic_update_slice at a known position writes, within bounds."""
    start = splat_value(op.operands[2 + dim])
    assert isinstance(start, int)
    return max(0, min(start, build.shape_of(op.operands[0])[dim] - build.shape_of(op.operands[1])[dim]))


_PARTS = MappingProxyType(
    {
        _SLICE: _parts_of_slice,
        _PAD: _parts_of_pad,
        "stablehlo.concatenate": _parts_of_join,
        _UPDATE: _parts_of_update,
    }
)


def may_shift(name: str) -> bool:
    """Whether an op of this name may be cut as a shift."""
    return name in _PARTS


def parts_along(op: ir.Operation, dim: int) -> tuple[Part, ...]:
    """The parts of an op along a dimension of it; empty if it is no shift, or does not change the dimension."""
    operands, result = [tuple(build.shape_of(value)) for value in op.operands], tuple(build.shape_of(op.results[0]))
    find = _PARTS.get(op.name)
    parts = None if find is None or dim >= len(result) else find(op, operands, result, dim)
    if parts is None or parts == (Part(0, 0, result[dim], 0),) and operands[0][dim] == result[dim]:
        return ()
    return parts


def _place(low: int, length: int, at: int, short: int) -> int:
    """The position of a part of `short` elements at element `at` of a tensor of `length` that begins at `low`.

    Parts of more than half, or nearer to the start, are aligned at the start; all others at the end.
    """
    return low if 2 * short >= length or at <= length - at - short else low + length - short


def _result_low(parts: Sequence[Part], operands: Sequence[DimMapping | None], length: int) -> int | None:
    """The position of a result of `length` elements, aligned with the longest of its operands."""
    known = [(part, mapping) for part in parts if (mapping := operands[part.operand]) is not None]
    if not known:
        return None
    part, mapping = max(known, key=lambda each: each[1].length)
    if mapping.length >= length:
        return _place(mapping.low, mapping.length, max(part.start + part.by, 0), length)
    return mapping.low - _place(0, length, max(-part.by, 0), mapping.length)


def lay_shift(op: ir.Operation, operands: Sequence[DimMapping | None], result: DimMapping | None) -> Factor | None:
    """The factor of an op that shifts parts along the cut dimension, in the indices of a region; None if impossible.

    operands, result: how these are cut in the region, if already known.
    """
    known = [mapping for mapping in (*operands, result) if mapping is not None]
    if not known or len({mapping.dim for mapping in known}) > 1 or any(mapping.inner != 1 for mapping in known):
        return None
    dim, length = known[0].dim, build.shape_of(op.results[0])
    if len({len(build.shape_of(op.operands[index])) for index, each in enumerate(operands) if each}) > 1:
        return None
    parts = parts_along(op, dim)
    low = result.low if result is not None else _result_low(parts, operands, length[dim])
    if not parts or low is None:
        return None
    made = DimMapping(dim, length[dim], low=low)
    laid: list[DimMapping | None] = [None] * len(op.operands)
    for part in parts:
        size = build.shape_of(op.operands[part.operand])[dim]
        long, at = (size, part.start + part.by) if size >= made.length else (made.length, -part.by)
        if size >= made.length:
            place = low - _place(0, long, max(at, 0), made.length)
        else:
            place = _place(low, long, max(at, 0), size)
        laid[part.operand] = operands[part.operand] or DimMapping(dim, size, low=place)
    sizes = [made.length, *(mapping.length for mapping in laid if mapping is not None)]
    most = max(sizes) // _LEAST_PART
    # Circular only if needed: with the period of the tensor that the parts are slices of, or of the result.
    for period in (0, *_sources(op, dim), made.length):
        if _furthest(parts, laid, made, period) <= most:
            reaches: list[tuple[int, int]] = [(0, 0)] * len(laid)
            for part in parts:
                moved = _distance(part, laid[part.operand], made, period)
                reaches[part.operand] = (-moved, moved)
            return Factor(Kind.INDEPENDENT, made.length, tuple(laid), (made,), reaches=tuple(reaches), period=period)
    return None


def _sources(op: ir.Operation, dim: int) -> list[int]:
    """The lengths of the tensors that the operands are slices of."""
    slices = [made for value in op.operands if (made := defining_op(value, _SLICE)) is not None]
    return [build.shape_of(made.operands[0])[dim] for made in slices]


def _furthest(parts: Sequence[Part], laid: Sequence[DimMapping | None], made: DimMapping, period: int) -> int:
    return max(abs(_distance(part, laid[part.operand], made, period)) for part in parts)


def _distance(part: Part, operand: DimMapping | None, result: DimMapping, period: int) -> int:
    """The distance of a shift: index i of the result is index i + distance of the operand."""
    assert operand is not None
    moved = part.by + operand.low - result.low
    return (moved + period // 2) % period - period // 2 if period else moved


def is_turned(op: ir.Operation, dim: int, period: int) -> bool:
    """Whether a result repeats one tensor of `period` elements: as in a roll, or with its ends repeated."""
    found: set[tuple[ir.Value, int]] = set()
    for part in parts_along(op, dim) if op.name == "stablehlo.concatenate" else ():
        value, by = op.operands[part.operand], part.by
        made = defining_op(value, _SLICE)
        if made is not None and integers(made, "strides", [])[dim] == 1:
            value, by = made.operands[0], by + integers(made, "start_indices", [])[dim]
        if build.shape_of(value)[dim] != period or (made is not None and not _is_along(made, dim)):
            return False
        found.add((value, by % period))
    return len(found) == 1


def _is_along(sliced: ir.Operation, dim: int) -> bool:
    """Whether a slice takes all of the other dimensions."""
    before, after = (build.shape_of(value) for value in (sliced.operands[0], sliced.results[0]))
    return replaced(before, dim, 0) == replaced(after, dim, 0)


def build_shift(tile: Tile) -> list[ir.Value]:
    """The op of one tile: reads the tile's indices of each part, and selects the part that each index belongs to."""
    made, place = result_mapping(tile)
    parts, dim = parts_along(tile.op, made.dim), made.dim
    if is_turned(tile.op, dim, tile.factor.period):
        parts = (max(parts, key=lambda part: part.stop - part.start),)
        return [_read(tile, parts[0], made, place)]
    read = [_read(tile, part, made, place) for part in parts]
    if tile.op.name == _SLICE:
        return read
    longest = max(range(len(parts)), key=lambda index: parts[index].stop - parts[index].start)
    covered = tile.op.name != _PAD or parts[longest].stop - parts[longest].start == made.length
    shape = build.shape_of(read[longest])
    value = read[longest] if covered else build.broadcast(tile.operands[1], shape)
    where = _positions(tile, made, place)
    for index, part in enumerate(parts):
        if covered and index == longest:
            continue
        inside = _between(where, part.start, part.stop)
        kind = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(1))
        mask = stablehlo.broadcast_in_dim(kind, inside, ir.DenseI64ArrayAttr.get([dim]))
        value = stablehlo.select(mask, _put(tile, dim, read[index], value), value)
    return [value]


def _put(tile: Tile, dim: int, part: ir.Value, value: ir.Value) -> ir.Value:
    """A part at its position along the other dimensions, in which an update may be shorter."""
    if build.shape_of(part) == build.shape_of(value):
        return part
    rank, start = len(build.shape_of(part)), tile.start
    places = [0 if other == dim else _updated_at(tile.op, other) for other in range(rank)]
    return stablehlo.dynamic_update_slice(value, part, [build.scalar_like(start, place) for place in places])


def _read(tile: Tile, part: Part, made: DimMapping, place: tuple[int, int]) -> ir.Value:
    """The tile's indices of one part, whether they belong to it or not; other dimensions as the op has them."""
    mapping, held = tile.factor.operands[part.operand], tile.operand_ranges[part.operand]
    assert held is not None
    value, dim = tile.operands[part.operand], made.dim
    first = place[0] + _distance(part, mapping, made, tile.factor.period) - held[0]
    length, shape = place[1] - place[0], build.shape_of(value)
    if tile.op.name == _SLICE:
        starts, limits = (integers(tile.op, name, []) for name in ("start_indices", "limit_indices"))
        starts, limits = replaced(starts, dim, first), replaced(limits, dim, first + length)
        if not any(starts) and limits == shape and all(step == 1 for step in integers(tile.op, "strides", [])):
            return value
        return _cloned(tile, [value], {"start_indices": starts, "limit_indices": limits})
    if (first, first + length) != (0, shape[dim]):
        limits = replaced(shape, dim, first + length)
        value = stablehlo.slice(value, replaced([0] * len(shape), dim, first), limits, [1] * len(shape))
    if tile.op.name == _PAD:
        low, high = (integers(tile.op, name, []) for name in ("edge_padding_low", "edge_padding_high"))
        if any(replaced(low, dim, 0)) or any(replaced(high, dim, 0)) or any(integers(tile.op, "interior_padding", [])):
            changed = {"edge_padding_low": replaced(low, dim, 0), "edge_padding_high": replaced(high, dim, 0)}
            return _cloned(tile, [value, tile.operands[1]], changed)
    return value


def _cloned(tile: Tile, operands: Sequence[ir.Value], changed: Mapping[str, Sequence[int]]) -> ir.Value:
    attributes: dict[str, ir.Attribute] = {
        name: ir.DenseI64ArrayAttr.get(list(numbers)) for name, numbers in changed.items()
    }
    return replace(tile, operands=operands).clone(attributes)[0]


def _positions(tile: Tile, made: DimMapping, place: tuple[int, int]) -> ir.Value:
    """The result's elements at the tile's indices; with a period, those that indices beyond an end stand for."""
    index = build.tensor_of(tile.start)
    line = build.with_shape(index, [place[1] - place[0]])
    begin = tile.begin(place)
    if made.low:
        begin = stablehlo.subtract(begin, build.scalar_like(begin, made.low))
    counted = stablehlo.add(stablehlo.iota(line, 0), build.broadcast(begin, [place[1] - place[0]]))
    period = tile.factor.period
    return _wrapped(counted, period) if made.length <= period else counted


def _wrapped(counted: ir.Value, period: int) -> ir.Value:
    """Integers in [-period, 2 * period), wrapped to [0, period)."""
    size = build.splat(build.tensor_of(counted), period)
    below = build.less_than(counted, build.zeros(counted.type))
    inside = stablehlo.select(below, stablehlo.add(counted, size), counted)
    return stablehlo.select(build.less_than(inside, size), inside, stablehlo.subtract(inside, size))


def _between(counted: ir.Value, start: int, stop: int) -> ir.Value:
    kind = build.tensor_of(counted)
    below = build.less_than(counted, build.splat(kind, stop))
    return stablehlo.and_(below, build.less_than(build.splat(kind, start - 1), counted))
