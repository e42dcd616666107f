"""Slices, pads, concatenations and updates along a sharded dimension: each device gets the rows that it lacks.

    u                          [ a b c d | e f g h | i j k l ]      d = u[1:] - u[:-1]
    u[1:] on device 1                    [ f g h   i ]              one row of the next device

The parts of such an op (`ops/shifts.py`) are shifted by a few rows: each device receives those beyond its own shard
from its neighbours. A short part, such as the row that a roll puts at the other end, is on all devices instead: a slice
of a few rows is added up from the devices that have them, and each device places what belongs to its own shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out
from exla_opt.ops.shardy import RULE
from exla_opt.ops.shifts import Part, is_turned

from .mesh import Mesh, parts
from .shardings import SHARDING, Spread, read_meshes, set_shardings, sharding_of_value
from .shift_parts import BOUNDS, EDGES, Readers, changed_dims, is_sent, shifted_parts

SHIFT = "exla_opt.shift"
"""The call that stands for such an op while Shardy pads dimensions, of which it would abort on the op itself."""

RING = "exla_opt.ring"
"""On a call whose rows go round, from the last device to the first."""

_SLICE, _PAD, _UPDATE = "stablehlo.slice", "stablehlo.pad", "stablehlo.dynamic_update_slice"
# By row: a dimension, the number of the operand, and the fields of its part.
_PARTS = "exla_opt.parts"


def state_shift(op: ir.Operation, readers: Readers, divisor: int) -> bool:
    """Give an op a sharding rule along dimensions that it shifts; False if it shifts none, or changes one otherwise.

    divisor: dimensions whose size it does not divide are not sharded.
    """
    by_dim = shifted_parts(op)
    if not by_dim:
        return False
    rows = [(dim, part.operand, part.start, part.stop, part.by) for dim in by_dim for part in by_dim[dim]]
    op.attributes[_PARTS] = ir.DenseI64ArrayAttr.get([number for row in rows for number in row])
    op.attributes[RULE] = _rule(op, by_dim, readers, divisor)
    return True


def _rule(op: ir.Operation, by_dim: Mapping[int, Sequence[Part]], readers: Readers, divisor: int) -> ir.Attribute:
    shapes = [build.shape_of(value) for value in (*op.operands, *op.results)]
    letters: list[list[int]] = [[] for _ in shapes]
    sizes: list[int] = []
    moved, summed, complete = set[int](), set[int](), set[int]()
    for dim, size in enumerate(shapes[-1]):
        of_result = len(sizes)
        sizes.append(size)
        letters[-1].append(of_result)
        found = {part.operand: part for part in by_dim.get(dim, ())}
        for index in (index for index, shape in enumerate(shapes[:-1]) if len(shape) == len(shapes[-1])):
            length, part = shapes[index][dim], found.get(index)
            sends_fewer = part is None or readers.send_fewer(op.operands[index], dim)
            is_few = min(size, length) < max(readers.counts, default=1)  # all devices have them
            if part is None or (not is_few and sends_fewer and is_sent(part, (length, size), readers.counts)):
                letters[index].append(of_result)
                sizes[of_result] = max(sizes[of_result], length)
                continue
            letters[index].append(len(sizes))
            # The rows of a short slice are added up from the devices that have them.
            is_short = op.name == _SLICE and 2 * size <= length and sends_fewer
            complete |= {of_result} if op.name == _SLICE else set()
            (summed if is_short else complete).add(len(sizes))
            sizes.append(length)
        if found:
            moved.add(of_result)
            if any(shape[dim] % divisor for shape in shapes if len(shape) == len(shapes[-1])):
                complete |= {letter for each in letters for letter in each[dim : dim + 1]}
    mappings = [mapping_of(each) for each in letters]
    return sdy.OpShardingRuleAttr.get(
        sizes,
        mappings[:-1],
        mappings[-1:],
        reduction_factors=sorted(summed - complete),
        need_replication_factors=sorted(complete),
        permutation_factors=sorted(moved - complete),
        is_custom=True,
    )


def call_rolls(module: ir.Module, devices: int) -> None:
    """Replace rolls of dimensions that the devices divide by calls, in place: no row is out of reach in a ring."""
    for op in inside_out(module, "stablehlo.concatenate"):
        dim, shape = integer(op, "dimension"), build.shape_of(op.results[0])
        if shape[dim] % devices or not is_turned(op, dim, shape[dim]):
            continue
        first = defining_op(op.operands[0], _SLICE)
        if first is None:  # not sliced: the tensor itself
            continue
        by = integers(first, "start_indices", [])[dim]
        letters = mapping_of(range(len(shape)))
        attributes = {
            "call_target_name": ir.StringAttr.get(SHIFT),
            RING: ir.UnitAttr.get(),
            _PARTS: ir.DenseI64ArrayAttr.get([dim, 0, 0, shape[dim], by]),
            RULE: sdy.OpShardingRuleAttr.get(shape, [letters], [letters], permutation_factors=[dim], is_custom=True),
        }
        with ir.InsertionPoint(op), op.location:
            made = ir.Operation.create("stablehlo.custom_call", [op.results[0].type], [first.operands[0]], attributes)
        op.results[0].replace_all_uses_with(made.results[0])
        op.erase()


def call_shifts(module: ir.Module) -> None:
    """Replace ops that shift a sharded dimension by calls, in place."""
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module):
        if _PARTS not in op.attributes or is_shift(op):
            continue
        by_dim = stated_parts(op)
        spread = sharding_of_value(op.results[0], meshes) or sharding_of_value(op.operands[0], meshes)
        cut = _sharded(op, by_dim, meshes)
        if spread is not None and cut:
            with ir.InsertionPoint(op), op.location:
                _call(op, by_dim, cut, spread.mesh, meshes)
        else:
            del op.attributes[_PARTS]


def stated_parts(op: ir.Operation) -> dict[int, list[Part]]:
    """The parts along each dimension that the op shifts, of a call, too."""
    found: dict[int, list[Part]] = {}
    numbers = integers(op, _PARTS, [])
    for place in range(0, len(numbers), 5):
        dim, *fields = numbers[place : place + 5]
        found.setdefault(dim, []).append(Part(*fields))
    return found


def _call(
    op: ir.Operation,
    by_dim: Mapping[int, Sequence[Part]],
    cut: Sequence[int],
    mesh: Mesh,
    meshes: Mapping[str, Mesh],
) -> None:
    operands = list(op.operands)
    if op.name in (_SLICE, _PAD):
        operands[0] = _along_others(op, set(cut), mesh, sharding_of_value(operands[0], meshes))
        by_dim = {dim: by_dim[dim] for dim in cut}
    count = 2 if op.name == _UPDATE else len(operands)
    rows = [(dim, part.operand, part.start, part.stop, part.by) for dim in by_dim for part in by_dim[dim]]
    rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
    attributes = {
        "call_target_name": ir.StringAttr.get(SHIFT),
        _PARTS: ir.DenseI64ArrayAttr.get([number for row in rows for number in row]),
        RULE: sdy.OpShardingRuleAttr.get(
            list(rule.factor_sizes),
            list(rule.operand_mappings)[:count],
            list(rule.result_mappings),
            reduction_factors=list(rule.reduction_factors),
            need_replication_factors=list(rule.need_replication_factors),
            permutation_factors=list(rule.permutation_factors),
            is_custom=True,
        ),
    }
    if SHARDING in op.attributes:
        attributes[SHARDING] = op.attributes[SHARDING]
    made = ir.Operation.create("stablehlo.custom_call", [op.results[0].type], operands[:count], attributes)
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()


def _along_others(op: ir.Operation, cut: set[int], mesh: Mesh, spread: Spread | None) -> ir.Value:
    """The operand of a slice or a pad after the op along the dimensions that are not sharded."""
    value: ir.Value = op.operands[0]
    before, after = build.shape_of(value), build.shape_of(op.results[0])
    shape = [old if dim in cut else new for dim, (old, new) in enumerate(zip(before, after, strict=True))]
    if shape == before and not _others(op, cut):
        return value
    made = op.clone(ip=ir.InsertionPoint(op)).operation
    made.results[0].set_type(build.with_shape(build.tensor_of(value), shape))
    whole = (dict.fromkeys(EDGES, 0)) if op.name == _PAD else {"start_indices": 0, "strides": 1}
    for name in EDGES if op.name == _PAD else BOUNDS:
        numbers = integers(op, name, [])
        for dim in cut:
            numbers[dim] = whole.get(name, before[dim])
        made.attributes[name] = ir.DenseI64ArrayAttr.get(numbers)
    for name in (RULE, _PARTS):
        del made.attributes[name]
    if spread is not None:
        set_shardings(made, [spread.sharding], mesh)
    found: ir.Value = made.results[0]
    return found


def _others(op: ir.Operation, cut: set[int]) -> list[int]:
    """The dimensions besides these that the op changes."""
    return [dim for dim in changed_dims(op) if dim not in cut]


def _sharded(op: ir.Operation, by_dim: Mapping[int, Sequence[Part]], meshes: Mapping[str, Mesh]) -> list[int]:
    found = []
    for dim in by_dim:
        values = [op.results[0], *(op.operands[part.operand] for part in by_dim[dim])]
        spread = [sharding_of_value(value, meshes) for value in values]
        if any(one is not None and parts(one.sharding[dim]) > 1 for one in spread):
            found.append(dim)
    return found


def is_shift(op: ir.Operation) -> bool:
    """Whether an op is a call of `SHIFT`."""
    return "call_target_name" in op.attributes and op.attributes["call_target_name"] == ir.StringAttr.get(SHIFT)


def mapping_of(factors: Iterable[int]) -> ir.Attribute:
    """The dimensions of a tensor, each filled by one factor."""
    return sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([factor]) for factor in factors])
