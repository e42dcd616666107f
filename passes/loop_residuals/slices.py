"""Ops that treat every step separately, and their form on the slice of one step."""

from __future__ import annotations

from collections.abc import Sequence

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
    if has_discardable_attributes(op) or len(op.results) != 1 or not len(op.operands):
        return False
    shape, before = types.of(op.results[0]).shape, types.of(op.operands[0]).shape
    if not before or not shape:
        return False
    if op.name == "stablehlo.transpose":
        return integers(op, "permutation", [])[0] == 0
    if op.name == "stablehlo.reshape":
        return before[0] == shape[0]
    if op.name == "stablehlo.reverse":
        return integers(op, "dimensions", []) == [0]
    if op.name == "stablehlo.broadcast_in_dim":
        return before[0] == shape[0] and integers(op, "broadcast_dimensions", [])[0] == 0
    if op.name == "stablehlo.slice":
        return before[1:] == shape[1:] and integers(op, "strides", [])[0] == 1
    return has_trait(op, Trait.POINTWISE) and all(types.of(value).shape == shape for value in op.operands)


def repeats(op: ir.Operation, types: Types) -> bool:
    """Whether all steps of an op's result are equal: a broadcast along the first dimension."""
    if op.name != "stablehlo.broadcast_in_dim" or has_discardable_attributes(op):
        return False
    dims = integers(op, "broadcast_dimensions", [])
    shape, before = types.of(op.results[0]).shape, types.of(op.operands[0]).shape
    return bool(shape) and (0 not in dims or (before[dims.index(0)] == 1 and shape[0] > 1))


def can_be_moved(index: ir.Value) -> bool:
    """Whether an index can be shifted or mirrored in its type without overflow."""
    kind = element_type(index)
    return isinstance(kind, ir.IntegerType) and kind.width >= 32 and not kind.is_unsigned


def moved_index(op: ir.Operation, index: ir.Value) -> ir.Value:
    """The operand index of an op by step for an index of its result."""
    if op.name == "stablehlo.slice":
        start = integers(op, "start_indices", [])[0]
        return stablehlo.add(index, build.splat(index.type, start)) if start else index
    if op.name == "stablehlo.reverse":
        mirrored: ir.Value = stablehlo.subtract(build.splat(index.type, build.shape_of(op.results[0])[0] - 1), index)
        return mirrored
    return index


def made_of_slices(op: ir.Operation, parts: Sequence[ir.Value]) -> ir.Value:
    """The slice of one step of an op's result, from slices of its operands, or from a broadcast operand."""
    if op.name in SHIFTS:
        return parts[0]
    shape = build.shape_of(op.results[0])
    return clone_on(op, parts, build.with_shape(build.tensor_of(op.results[0]), [1, *shape[1:]]))


def clone_on(op: ir.Operation, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
    """The op on other operands, with a result of another type."""
    clone = op.clone(ip=ir.InsertionPoint.current).operation
    for place, value in enumerate(operands):
        clone.operands[place] = value
    clone.results[0].set_type(kind)
    made: ir.Value = clone.results[0]
    return made


def slice_at(value: ir.Value, index: ir.Value, types: Types) -> ir.Value:
    """The step of a tensor at an index; for a tensor with equal steps, one of them."""
    number, op = splat_value(value), defining_op(value)
    if number is not None:
        return build.splat(build.with_shape(build.tensor_of(value), [1, *build.shape_of(value)[1:]]), number)
    if op is not None and repeats(op, types):
        return made_of_slices(op, list(op.operands))
    return build.slice_along(value, 0, index, 1)
