"""Dimensions that their devices do not divide: keeps the padding out of reductions.

Shardy pads such a dimension at its end with zeros, which other ops turn into other numbers: exp makes ones. So before a
reduction along the dimension, the positions beyond its end are set to the identity of the reduction. Shardy does so
before dots only, and does not annotate those ops with shardings. Indices of a gather are clamped to the dimension as it
was; those of a scatter may write into the padding, which nothing reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out
from exla_opt.ops.index_numbers import numbers_of, place_of
from exla_opt.ops.reducers import IDENTITY, monoid_of

from .indexing import GATHER, SCATTER, clamp_indices, indexed_dims
from .mesh import Mesh, Sharding, parts
from .shardings import SHARDING, Spread, read_meshes, set_shardings, sharding_of_value
from .shifts import is_shift

# Along a dimension, these combine elements, padding included.
_READING = (GATHER, SCATTER, "stablehlo.custom_call", "stablehlo.convolution", "stablehlo.dot")


def mask_uneven(module: ir.Module) -> None:
    """Mask the operands of reductions beyond the end of dimensions that will be padded, in place.

    Raises InputError for ops that might read the padding and have no masks.
    """
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module):
        if op.name == "stablehlo.reduce":
            for index in range(len(op.results)):
                _mask(op, index, integers(op, "dimensions", []), meshes)
        elif op.name in (GATHER, SCATTER) and _is_padded_well(op, meshes):
            if op.name == GATHER:
                _clamp(op, meshes)
        elif op.name in _READING and not is_shift(op) and _reads_unevenly(op, meshes):
            raise InputError(f"{op.name} reads a dimension that its devices do not divide evenly")


def copy_carries(module: ir.Module) -> None:
    """Copy what loops carry for ops whose results will be padded, in place: Shardy loses such operands."""
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module, "stablehlo.while"):
        block = op.regions[1].blocks[0]
        for argument in block.arguments:
            spread = sharding_of_value(argument, meshes)
            uses = [use for use in argument.uses if _makes_uneven(use.owner.operation, meshes)]
            if spread is None or not uses:
                continue
            with ir.InsertionPoint.at_block_begin(block), op.location:
                copy = _spread(stablehlo.reshape(argument.type, argument), spread.sharding, spread.mesh)
            for use in uses:
                use.owner.operation.operands[use.operand_number] = copy


def is_uneven(module: ir.Module) -> bool:
    """Whether devices do not divide some dimension of a tensor."""
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module):
        carried = [each for region in op.regions for block in region.blocks for each in block.arguments]
        for value in (*op.operands, *op.results, *carried):
            spread = sharding_of_value(value, meshes)
            if spread is not None and _uneven(value, spread):
                return True
    return False


def _makes_uneven(op: ir.Operation, meshes: Mapping[str, Mesh]) -> bool:
    spread = [(result, sharding_of_value(result, meshes)) for result in op.results]
    return any(one is not None and bool(_uneven(result, one)) for result, one in spread)


def spread_additions(module: ir.Module) -> None:
    """Give the ops that Shardy inserts, masks and clamps of indices, the sharding of their operand."""
    meshes = {mesh.name: mesh for mesh in read_meshes(module)}
    for op in inside_out(module, "stablehlo.select", "stablehlo.minimum"):
        value = op.operands[1 if op.name == "stablehlo.select" else 0]
        spread = sharding_of_value(value, meshes)
        if spread is not None:
            _spread_back(op, spread)


def _spread_back(last: ir.Operation, spread: Spread) -> None:
    """Give an op that has no sharding one, and the ops that compute its operands, up to those of another rank."""
    made: list[ir.Operation | None] = [last]
    while made:
        each = made.pop()
        if each is None or SHARDING in each.attributes:
            continue
        if len(build.shape_of(each.results[0])) != len(spread.sharding):  # a scalar, or not Shardy's
            continue
        set_shardings(each, [spread.sharding], spread.mesh)
        made += [defining_op(value) for value in each.operands]


def _is_padded_well(op: ir.Operation, meshes: Mapping[str, Mesh]) -> bool:
    """Whether a gather or a scatter of one operand may have its uneven dimensions padded.

    Those of the operand are found by indices, or stand for batches. A gather's indices in the padding find rows that
    are padding as well; those of a scatter would write, so only batches of theirs are padded, with the operand's.
    """
    uneven: list[set[int]] = []
    for value in op.operands:
        spread = sharding_of_value(value, meshes)
        uneven.append(set() if spread is None else set(_uneven(value, spread)))
    if len(op.results) > 1:
        return not any(uneven)
    numbers = numbers_of(op)
    batches = {at for dim, at in zip(numbers.batching, numbers.at_index, strict=True) if dim in uneven[0]}
    if not uneven[0] <= {*indexed_dims(op), *numbers.batching} or numbers.vector in uneven[1]:
        return False
    if op.name == GATHER:
        return batches <= uneven[1]
    return uneven[1] == batches and uneven[2] == {place_of(numbers, at) for at in batches}


def _clamp(op: ir.Operation, meshes: Mapping[str, Mesh]) -> None:
    operand, indices = sharding_of_value(op.operands[0], meshes), sharding_of_value(op.operands[1], meshes)
    named = numbers_of(op).named
    dims = [] if operand is None else [dim for dim in _uneven(op.operands[0], operand) if dim in named]
    if not dims:
        return
    clamp_indices(op, dims)
    made = defining_op(op.operands[1])
    if indices is not None and made is not None:
        _spread_back(made, indices)


def _reads_unevenly(op: ir.Operation, meshes: Mapping[str, Mesh]) -> bool:
    spread = [(value, sharding_of_value(value, meshes)) for value in op.operands]
    return any(one is not None and bool(_uneven(value, one)) for value, one in spread)


def _uneven(value: ir.Value, spread: Spread) -> list[int]:
    return [
        dim
        for dim, (size, axes) in enumerate(zip(build.shape_of(value), spread.sharding, strict=True))
        if size % parts(axes)
    ]


def _mask(op: ir.Operation, index: int, dims: list[int], meshes: Mapping[str, Mesh]) -> None:
    value = op.operands[index]
    spread = sharding_of_value(value, meshes)
    if spread is None:
        return
    for dim in [dim for dim in _uneven(value, spread) if dim in dims]:
        with ir.InsertionPoint(op), op.location:
            op.operands[index] = _masked(op, index, dim, spread)


def _masked(op: ir.Operation, index: int, dim: int, spread: Spread) -> ir.Value:
    """An operand with the identity beyond its end along a dimension."""
    value = op.operands[index]
    kind = build.tensor_of(value)
    shape = build.shape_of(value)
    counted = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(32))
    monoid = monoid_of(op)
    if monoid is None and len(op.results) == 1:
        raise InputError(f"{op.name} would reduce elements of the padding")
    positions = _spread(stablehlo.iota(counted, dim), spread.sharding, spread.mesh)
    end = _repeated(build.scalar_i32(shape[dim]), counted, spread)
    inside = _spread(build.compare(positions, end, "LT", "SIGNED"), spread.sharding, spread.mesh)
    if monoid in IDENTITY:
        neutral = build.splat(build.with_shape(kind, []), IDENTITY[monoid])
    else:  # the reduction's initial value, which may be combined any number of times
        neutral = op.operands[len(op.results) + index]
    return _spread(stablehlo.select(inside, value, _repeated(neutral, kind, spread)), spread.sharding, spread.mesh)


def _repeated(number: ir.Value, kind: ir.RankedTensorType, spread: Spread) -> ir.Value:
    found = stablehlo.broadcast_in_dim(kind, number, ir.DenseI64ArrayAttr.get([]))
    return _spread(found, spread.sharding, spread.mesh)


def _spread(value: ir.Value, sharding: Sharding, mesh: Mesh) -> ir.Value:
    op = defining_op(value)
    assert op is not None
    set_shardings(op, [sharding], mesh)
    return value
