"""Slices and updates at an index that is known only at run time, along a sharded dimension.

An update, such as a token's keys in a cache, is on all devices, and each writes the rows that are its own. A slice is
added up from the devices that have its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.ops.shardy import RULE

from .localise import Localiser, Results, plain
from .mesh import Axes, Sharding, parts
from .shifted import own_rows, sum_of_own_rows, within
from .shifts import mapping_of

SLICE, UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"


def state_at_index(op: ir.Operation, devices: int) -> bool:
    """Give a slice or an update at an index a sharding rule along dimensions of which it takes a part; else False.

    devices: these must divide the dimension. In a loop a slice has such a rule only if each step changes the tensor: of
    another, all devices better have all, once.
    """
    if op.name not in (SLICE, UPDATE) or (op.name == SLICE and _is_in_loop(op) and not _is_changed(op.operands[0])):
        return False
    whole = build.shape_of(op.operands[0])
    part = build.shape_of(op.results[0] if op.name == SLICE else op.operands[1])
    index = op.operands[1 if op.name == SLICE else 2] if whole else None
    if whole == part or 0 in part or index is None or ir.IntegerType(build.tensor_of(index).element_type).width < 32:
        return False
    readers = sum(use.owner.operation.name == SLICE for use in op.operands[0].uses)
    sizes, complete = list(whole), list[int]()
    of_part = list(range(len(whole)))
    summed = []
    for dim, (size, taken) in enumerate(zip(whole, part, strict=True)):
        if size == taken:
            continue
        of_part[dim] = len(sizes)
        complete.append(len(sizes))
        sizes.append(taken)
        if size % devices or (op.name == SLICE and 2 * taken * readers > size):  # else it is gathered once for all
            complete.append(dim)
        elif op.name == SLICE:
            summed.append(dim)
    large, small = mapping_of(range(len(whole))), mapping_of(of_part)
    scalars = [mapping_of([])] * len(whole)
    op.attributes[RULE] = sdy.OpShardingRuleAttr.get(
        sizes,
        [large, *scalars] if op.name == SLICE else [large, small, *scalars],
        [small if op.name == SLICE else large],
        reduction_factors=summed,
        need_replication_factors=sorted(complete),
        is_custom=True,
    )
    return True


def _is_in_loop(op: ir.Operation) -> bool:
    around = op.parent
    while around is not None and around.name != "func.func":
        if around.name == "stablehlo.while":
            return True
        around = around.operation.parent
    return False


def _is_changed(value: ir.Value) -> bool:
    """Whether it is what a loop carries, and is changed by each step."""
    block = value.owner
    if not isinstance(block, ir.Block) or block.owner.operation.name != "stablehlo.while":
        return False
    return bool(terminator(block).operands[ir.BlockArgument(value).arg_number] != value)


def slice_at_index(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The sum over all devices of the slice's rows that each has."""
    cut = _cut(op, localiser.shardings[op.operands[0]])
    if not cut:
        return _in_bounds(localiser, op, shardings)
    value, *indices = localiser.operands(op)
    kind = ir.RankedTensorType(localiser.local_type(op.results[0], shardings[0]))
    lengths = build.shape_of(value)
    for dim, length in enumerate(kind.shape):
        lengths[dim] = lengths[dim] if dim in dict(cut) else length
    zero = build.zeros(indices[0].type)
    value = stablehlo.dynamic_slice(
        value, [zero if dim in dict(cut) else at for dim, at in enumerate(indices)], lengths
    )
    axes: Axes = ()
    for dim, along in cut:
        value = own_rows(value, dim, _first(localiser, op, indices[dim], dim, along, kind.shape[dim]), kind.shape[dim])
        axes += along
    return [sum_of_own_rows(localiser, value, axes)]


def _in_bounds(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """The op itself. If its own result is cut, its indices are clamped: XLA merges both slices, and clamps once."""
    made = plain(localiser, op, shardings)
    own = defining_op(made[0])
    if own is None or not any(use.owner.operation.name == "sdy.all_slice" for use in op.results[0].uses):
        return made
    whole, part = build.shape_of(own.operands[0]), build.shape_of(made[0])
    with ir.InsertionPoint(own):
        for dim, (size, taken) in enumerate(zip(whole, part, strict=True)):  # one index may stand for two dimensions
            index = own.operands[1 + dim]
            own.operands[1 + dim] = build.clamp(build.zeros(index.type), index, build.scalar_like(index, size - taken))
    return made


def update_at_index(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    """An update of the rows that the device has: the others are written as they were."""
    cut = _cut(op, shardings[0])
    if not cut:
        return plain(localiser, op, shardings)
    operand, update, *indices = localiser.operands(op)
    masks = []
    for dim, axes in cut:
        given, size = build.shape_of(update)[dim], build.shape_of(operand)[dim]
        rows = min(given, size)
        first = _first(localiser, op, indices[dim], dim, axes, given)
        at = build.clamp(build.scalar_i32(0), first, build.scalar_i32(size - rows))
        behind = stablehlo.subtract(at, first)
        update = own_rows(update, dim, behind, rows)
        masks.append((dim, behind, given))
        indices[dim] = build.convert(at, build.tensor_of(indices[dim]).element_type)
    before = stablehlo.dynamic_slice(operand, indices, build.shape_of(update))
    for dim, behind, given in masks:
        update = stablehlo.select(within(behind, given, dim, build.shape_of(update)), update, before)
    return [stablehlo.dynamic_update_slice(operand, update, indices)]


def _cut(op: ir.Operation, sharding: Sharding) -> list[tuple[int, Axes]]:
    """The sharded dimensions of which the op takes a part."""
    whole = build.shape_of(op.operands[0])
    part = build.shape_of(op.results[0] if op.name == SLICE else op.operands[1])
    sizes = enumerate(zip(sharding, whole, part, strict=True))
    return [(dim, axes) for dim, (axes, size, taken) in sizes if size != taken and parts(axes) > 1]


def _first(localiser: Localiser, op: ir.Operation, index: ir.Value, dim: int, axes: Axes, length: int) -> ir.Value:
    """Where `length` rows at an index begin, counted from the device's first row; a tensor<i32>."""
    size = build.shape_of(op.operands[0])[dim]
    inside = build.clamp(build.zeros(index.type), index, build.scalar_like(index, size - length))
    offset = localiser.collectives.offset(axes, size // parts(axes))
    return stablehlo.subtract(build.convert(inside, build.tensor_of(offset).element_type), offset)
