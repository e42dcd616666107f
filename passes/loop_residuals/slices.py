"""Ops that treat every step separately, and their form on the slice of one step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.traits import Trait, has_trait

# Ops by step whose result at one index is the operand at another.
SHIFTS = ("stablehlo.slice", "stablehlo.reverse")


def is_by_step(op: ir.Operation, types: Types) -> bool:
    """Whether each step along the first dimension of the result depends on one step of each operand."""
    return not len(op.regions) and step_dim(op, types, 0) == 0


def step_dim(op: ir.Operation, types: Types, dim: int) -> int | None:
    """The dimension of the operands of which one step suffices for one step along a dimension of the result.

    None if there is none. A reduce has such steps in its first operand alone, and is of one operand.
    """
    if has_discardable_attributes(op) or len(op.results) != 1 or not len(op.operands):
        return None
    shape, before = types.of(op.results[0]).shape, types.of(op.operands[0]).shape
    if not before or not shape:
        return None
    found: int | None = None
    if op.name == "stablehlo.transpose":
        found = integers(op, "permutation", [])[dim]
    elif op.name == "stablehlo.reshape":
        same = [at for at, size in enumerate(before) if size == shape[dim] and prod(before[:at]) == prod(shape[:dim])]
        found = same[0] if same else None
    elif op.name == "stablehlo.reverse":
        found = dim if integers(op, "dimensions", []) == [dim] else None
    elif op.name == "stablehlo.broadcast_in_dim":
        dims = integers(op, "broadcast_dimensions", [])
        found = dims.index(dim) if dim in dims and before[dims.index(dim)] == shape[dim] else None
    elif op.name == "stablehlo.slice":
        cut = [at for at, size in enumerate(before) if size != shape[at]]
        found = dim if not set(cut) - {dim} and integers(op, "strides", [])[dim] == 1 else None
    elif op.name == "stablehlo.reduce":
        gone = integers(op, "dimensions", [])
        found = [at for at in range(len(before)) if at not in gone][dim]
    elif has_trait(op, Trait.POINTWISE) and all(types.of(value).shape == shape for value in op.operands):
        found = dim
    return found


def repeats(op: ir.Operation, types: Types, dim: int = 0) -> bool:
    """Whether all steps of an op's result along a dimension are equal: it is broadcast along it."""
    if op.name != "stablehlo.broadcast_in_dim" or has_discardable_attributes(op):
        return False
    dims = integers(op, "broadcast_dimensions", [])
    shape, before = types.of(op.results[0]).shape, types.of(op.operands[0]).shape
    return bool(shape) and (dim not in dims or (before[dims.index(dim)] == 1 and shape[dim] > 1))


def can_be_moved(index: ir.Value) -> bool:
    """Whether an index can be shifted or mirrored in its type without overflow."""
    kind = element_type(index)
    return isinstance(kind, ir.IntegerType) and kind.width >= 32 and not kind.is_unsigned


def moved_index(op: ir.Operation, index: ir.Value, dim: int) -> ir.Value:
    """The operand index of an op by step for an index of its result, along a dimension."""
    if op.name == "stablehlo.slice":
        start = integers(op, "start_indices", [])[dim]
        return stablehlo.add(index, build.splat(index.type, start)) if start else index
    if op.name == "stablehlo.reverse":
        last = build.shape_of(op.results[0])[dim] - 1
        mirrored: ir.Value = stablehlo.subtract(build.splat(index.type, last), index)
        return mirrored
    return index


def made_of_slices(op: ir.Operation, parts: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    """The slice of one step of an op's result, from slices of its operands, or from a broadcast operand."""
    if op.name in SHIFTS:
        return parts[0]
    return clone_on(op, parts, _one_step(op.results[0], dim))


def clone_on(op: ir.Operation, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
    """The op on other operands, with a result of another type."""
    clone = op.clone(ip=ir.InsertionPoint.current).operation
    for place, value in enumerate(operands):
        clone.operands[place] = value
    clone.results[0].set_type(kind)
    made: ir.Value = clone.results[0]
    return made


def slice_at(value: ir.Value, index: ir.Value, types: Types, dim: int = 0) -> ir.Value:
    """The step of a tensor at an index along a dimension; for a tensor with equal steps, one of them."""
    number, op = splat_value(value), defining_op(value)
    if number is not None:
        return build.splat(_one_step(value, dim), number)
    if op is not None and repeats(op, types, dim):
        return made_of_slices(op, list(op.operands), dim)
    return build.slice_along(value, dim, index, 1)


def _one_step(value: ir.Value, dim: int) -> ir.RankedTensorType:
    shape = build.shape_of(value)
    shape[dim] = 1
    return build.with_shape(build.tensor_of(value), shape)
