"""The local forms of slices, pads, concatenations and updates along a sharded dimension (see `shifts.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ops.shifts import Part

from .deliveries import rounds_of
from .localise import Localiser, NoLocalForm, Results
from .mesh import Axes, Sharding, parts
from .shifts import RING, stated_parts


def shifted(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The local form of a call of `SHIFT`."""
    operands = localiser.operands(op)
    if RING in op.attributes:
        [(dim, [part])] = stated_parts(op).items()
        return [_rolled(localiser, operands[0], part.by, dim, shardings[0][dim])]
    local = ir.RankedTensorType(localiser.local_type(op.results[0], shardings[0]))
    by_operand: dict[int, dict[int, Part]] = {}
    for dim, found in stated_parts(op).items():
        for part in found:
            by_operand.setdefault(part.operand, {})[dim] = part
    placed = {}
    for number, along in by_operand.items():
        value = operands[number]
        for dim, part in along.items():
            has, wants = localiser.shardings[op.operands[number]][dim], shardings[0][dim]
            value = _placed(localiser, value, part, dim, (has, wants), local.shape[dim])
        placed[number] = value
    base = _base(op, operands, placed, by_operand, local)
    value = placed.pop(base) if isinstance(base, int) else base
    for number, part_value in placed.items():
        mask = _mask(localiser, by_operand[number], shardings[0], local)
        value = stablehlo.select(mask, part_value, value)
    return [value]


def _base(
    op: ir.Operation,
    operands: Sequence[ir.Value],
    placed: Mapping[int, ir.Value],
    by_operand: Mapping[int, Mapping[int, Part]],
    kind: ir.RankedTensorType,
) -> ir.Value | int:
    """What the parts are selected over: an operand that is not shifted, or else the number of the longest part."""
    others = [value for number, value in enumerate(operands) if number not in placed]
    if not others:
        return max(by_operand, key=lambda number: max(each.stop - each.start for each in by_operand[number].values()))
    [base] = others
    return base if build.shape_of(base) == list(kind.shape) else build.broadcast(base, kind.shape)


def _mask(localiser: Localiser, found: Mapping[int, Part], sharding: Sharding, kind: ir.RankedTensorType) -> ir.Value:
    """Where a shard's elements belong to a part."""
    masks = []
    for dim, part in found.items():
        size = kind.shape[dim]
        line = ir.RankedTensorType.get([size], ir.IntegerType.get_signless(32))
        where = stablehlo.iota(line, 0)
        if parts(sharding[dim]) > 1:
            where = stablehlo.add(where, build.broadcast(localiser.collectives.offset(sharding[dim], size), [size]))
        masks.append(_between(where, build.splat(line, part.start), build.splat(line, part.stop), dim, kind.shape))
    mask = masks[0]
    for other in masks[1:]:
        mask = stablehlo.and_(mask, other)
    return mask


def _placed(
    localiser: Localiser, value: ir.Value, part: Part, dim: int, axes: tuple[Axes, Axes], length: int
) -> ir.Value:
    """The part at its position in the shard of the result; other elements are unspecified.

    axes: along which the dimension is sharded in the part's operand, and in the result. length: of the result's shard.
    """
    has, wants = axes
    size = build.shape_of(value)[dim]
    if parts(has) == 1:
        if parts(wants) == 1:
            return _window(value, dim, part.by, length)
        if size == 1:
            return _repeated(value, dim, length)
        start = stablehlo.add(localiser.collectives.offset(wants, length), build.scalar_i32(part.by + length))
        return build.slice_along(_extended(value, dim, length, length), dim, start, length)
    if parts(wants) == 1:
        return _summed(localiser, value, part, dim, has, length)
    if has != wants:
        raise NoLocalForm(
            "a slice, a pad or a concatenation along a dimension that is sharded differently before and after it"
        )
    before, behind = rows_beyond(part, size, length, parts(has))
    if max(before, behind) > size:
        return _delivered(localiser, value, part, dim, has, length)
    joined = _with_neighbours(localiser, value, dim, has, (before, behind))
    starts = [index * (length - size) + part.by + before for index in range(parts(has))]
    if size == length:
        return _window(joined, dim, starts[0], length)
    low = max(0, -min(starts))
    high = max(0, max(starts) + length - (size + before + behind))
    offset = stablehlo.multiply(localiser.collectives.index(has), build.scalar_i32(length - size))
    start = stablehlo.add(offset, build.scalar_i32(part.by + before + low))
    return build.slice_along(_extended(joined, dim, low, high), dim, start, length)


def rows_beyond(part: Part, has: int, wants: int, count: int) -> tuple[int, int]:
    """The rows that any shard needs from the one before it, and from the one after it.

    has, wants: the rows of a shard of the operand, and of the result.
    """
    before = behind = 0
    for index in range(count):
        first, last = max(index * wants, part.start), min((index + 1) * wants, part.stop)
        if first < last:
            before = max(before, index * has - (first + part.by))
            behind = max(behind, last + part.by - (index + 1) * has)
    return before, behind


def _repeated(row: ir.Value, dim: int, length: int) -> ir.Value:
    shape = build.shape_of(row)
    kind = build.with_shape(build.tensor_of(row), [*shape[:dim], length, *shape[dim + 1 :]])
    return stablehlo.broadcast_in_dim(kind, row, ir.DenseI64ArrayAttr.get(list(range(len(shape)))))


def _delivered(localiser: Localiser, value: ir.Value, part: Part, dim: int, axes: Axes, length: int) -> ir.Value:
    """The part where it comes from any devices: the windows of all rounds, each at its position."""
    size, count = build.shape_of(value)[dim], parts(axes)
    shape = build.shape_of(value)
    shape[dim] = length
    found = build.zeros(build.with_shape(build.tensor_of(value), shape))
    for each in rounds_of(part, size, length, count):
        window = _window(value, dim, each.low, each.high - each.low)
        if not each.is_own:
            pairs = [(one.source, one.target) for one in each.deliveries]
            window = localiser.collectives.send(window, axes, pairs)
        # By device: the position of the window in the result, and the rows of the result that are in it.
        place, low, high = [0] * count, [0] * count, [0] * count
        for one in each.deliveries:
            start = one.source * size - part.by - one.target * length
            place[one.target], low[one.target], high[one.target] = start + each.low, start + one.low, start + one.high
        at = localiser.collectives.number(axes, [length - one for one in place])
        placed = build.slice_along(_extended(window, dim, length, length), dim, at, length)
        line = ir.RankedTensorType.get([length], ir.IntegerType.get_signless(32))
        limits = [build.broadcast(localiser.collectives.number(axes, side), [length]) for side in (low, high)]
        mask = _between(stablehlo.iota(line, 0), limits[0], limits[1], dim, shape)
        found = stablehlo.select(mask, placed, found)
    return found


def _between(where: ir.Value, low: ir.Value, high: ir.Value, dim: int, shape: Sequence[int]) -> ir.Value:
    """The mask of a shape in which positions along a dimension are from `low` on and below `high`."""
    inside = stablehlo.and_(build.compare(where, low, "GE", "SIGNED"), build.compare(where, high, "LT", "SIGNED"))
    kind = ir.RankedTensorType.get(list(shape), ir.IntegerType.get_signless(1))
    return stablehlo.broadcast_in_dim(kind, inside, ir.DenseI64ArrayAttr.get([dim]))


def _with_neighbours(localiser: Localiser, value: ir.Value, dim: int, axes: Axes, rows: tuple[int, int]) -> ir.Value:
    size, (before, behind) = build.shape_of(value)[dim], rows
    joined = value
    if before:
        joined = build.join(
            localiser.collectives.shift(_window(value, dim, size - before, before), axes, 1), joined, dim
        )
    if behind:
        joined = build.join(joined, localiser.collectives.shift(_window(value, dim, 0, behind), axes, -1), dim)
    return joined


def _summed(localiser: Localiser, value: ir.Value, part: Part, dim: int, axes: Axes, length: int) -> ir.Value:
    """A slice of `length` rows on all devices."""
    begin = localiser.collectives.offset(axes, build.shape_of(value)[dim])
    own = own_rows(value, dim, stablehlo.subtract(build.scalar_i32(part.by), begin), length)
    return sum_of_own_rows(localiser, own, axes)


def own_rows(value: ir.Value, dim: int, first: ir.Value, length: int) -> ir.Value:
    """Rows [first, first + length) of a dimension; zeros for those that the value does not have.

    first: a tensor<i32>, of any sign.
    """
    size = build.shape_of(value)[dim]
    taken = min(length, size)
    at = build.clamp(build.scalar_i32(0), first, build.scalar_i32(size - taken))
    found = build.slice_along(value, dim, at, taken)
    before = stablehlo.subtract(first, at)  # of the rows taken, the one that comes first in the result
    start = stablehlo.add(before, build.scalar_i32(length))
    placed = build.slice_along(_extended(found, dim, length, length), dim, start, length)
    return stablehlo.select(within(before, taken, dim, build.shape_of(placed)), placed, build.zeros(placed.type))


def sum_of_own_rows(localiser: Localiser, own: ir.Value, axes: Axes) -> ir.Value:
    """The rows that some device has, on all of them."""
    is_bit = build.tensor_of(own).element_type == ir.IntegerType.get_signless(1)
    return localiser.collectives.reduce(own, axes, "or" if is_bit else "add")


def within(first: ir.Value, size: int, dim: int, shape: Sequence[int]) -> ir.Value:
    """The mask of a shape in which position i of a dimension is set if first + i is in [0, size)."""
    line = ir.RankedTensorType.get([shape[dim]], ir.IntegerType.get_signless(32))
    where = stablehlo.add(stablehlo.iota(line, 0), build.broadcast(first, [shape[dim]]))
    return _between(where, build.zeros(line), build.splat(line, size), dim, shape)


def _window(value: ir.Value, dim: int, start: int, length: int) -> ir.Value:
    """Elements [start, start + length) of a dimension; those beyond its ends are zeros."""
    size = build.shape_of(value)[dim]
    value = _extended(value, dim, max(0, -start), max(0, start + length - size))
    start = max(start, 0)
    shape = build.shape_of(value)
    if (start, length) == (0, shape[dim]):
        return value
    starts, limits = [0] * len(shape), list(shape)
    starts[dim], limits[dim] = start, start + length
    return stablehlo.slice(value, starts, limits, [1] * len(shape))


def _extended(value: ir.Value, dim: int, low: int, high: int) -> ir.Value:
    """The value with zeros before and after it along a dimension."""
    if not low and not high:
        return value
    kind, shape = build.tensor_of(value), build.shape_of(value)
    edges = [[number if each == dim else 0 for each in range(len(shape))] for number in (low, high, 0)]
    shape[dim] += low + high
    zero = build.zeros(build.with_shape(kind, []))
    return stablehlo.PadOp(value, zero, *edges, results=[build.with_shape(kind, shape)]).result


def _rolled(localiser: Localiser, value: ir.Value, by: int, dim: int, axes: Axes) -> ir.Value:
    """The shard of a roll: row i of the result is row i + by of the value, modulo its length."""
    size = build.shape_of(value)[dim]
    devices, rows = divmod(by, size)
    first = localiser.collectives.turn(_window(value, dim, rows, size - rows), axes, devices)
    if not rows:
        return first
    return build.join(first, localiser.collectives.turn(_window(value, dim, 0, rows), axes, devices + 1), dim)
