"""Gathers and scatters with sharded rows: each device uses the indices of its own rows."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ops.index_numbers import GATHER, SCATTER, numbers_of
from exla_opt.ops.reducers import body_of, componentwise

__all__ = ["GATHER", "SCATTER", "clamp_indices", "in_own_rows", "indexed_dims", "is_summing", "mask_of"]


def indexed_dims(op: ir.Operation) -> tuple[int, ...]:
    """The dimensions of a gather's or a scatter's operand in which each index selects one row."""
    numbers = numbers_of(op)
    if len(op.results) != 1:
        return ()
    if op.name == GATHER:
        sizes = integers(op, "slice_sizes", [])
        return tuple(dim for dim in numbers.named if sizes[dim] == 1)
    return tuple(dim for dim in numbers.named if dim in numbers.single)


def is_summing(op: ir.Operation) -> bool:
    """Whether a scatter's result may be combined from several scatters: it adds, and has one operand."""
    return len(op.results) == 1 and componentwise(body_of(op)) == ("add",)


def in_own_rows(op: ir.Operation, indices: ir.Value, dim: int, offset: ir.Value, size: int) -> ir.Value:
    """The indices, counted from the device's first row of dimension `dim`; those of other rows are out of bounds.

    offset: the first row, a tensor<i32>. size: of the dimension on all devices. A gather's indices are clamped first.
    """
    numbers = numbers_of(op)
    component = numbers.named.index(dim)
    values = _signed(indices)
    if op.name == GATHER:
        values = _clamped(values, numbers.vector, component, size)
    first = build.convert(offset, build.tensor_of(values).element_type)
    moved = stablehlo.subtract(values, build.broadcast(first, build.shape_of(values)))
    return _in_component(values, moved, numbers.vector, component)


def clamp_indices(op: ir.Operation, dims: Sequence[int]) -> None:
    """Clamp a gather's indices, in place, to dimensions of its operand that will be padded."""
    numbers, shape = numbers_of(op), build.shape_of(op.operands[0])
    with ir.InsertionPoint(op), op.location:
        values = _signed(op.operands[1])
        for dim in dims:
            values = _clamped(values, numbers.vector, numbers.named.index(dim), shape[dim])
        op.operands[1] = values


def _signed(indices: ir.Value) -> ir.Value:
    """The indices as signed integers of at least 32 bits."""
    element = ir.IntegerType(build.tensor_of(indices).element_type)
    return build.convert(indices, ir.IntegerType.get_signless(64 if element.width + element.is_unsigned > 32 else 32))


def _clamped(values: ir.Value, vector: int, component: int, size: int) -> ir.Value:
    """The indices, with one component clamped to 0, ..., size - 1."""
    number = build.with_shape(build.tensor_of(values), [])
    changed = build.clamp(build.zeros(number), values, build.splat(number, size - 1))
    return _in_component(values, changed, vector, component)


def mask_of(op: ir.Operation, indices: ir.Value, dim: int, size: int, shape: list[int]) -> ir.Value:
    """The mask of a gather's result, of `shape`, in rows of this device. indices: as above. size: rows."""
    numbers = numbers_of(op)
    component = numbers.named.index(dim)
    rank = len(build.shape_of(indices))
    one = indices
    if numbers.vector < rank:
        starts = [0] * rank
        limits = build.shape_of(indices)
        starts[numbers.vector], limits[numbers.vector] = component, component + 1
        part = stablehlo.slice(indices, starts, limits, [1] * rank)
        without = [size for place, size in enumerate(limits) if place != numbers.vector]
        one = stablehlo.reshape(build.with_shape(build.tensor_of(part), without), part)
    kind = build.tensor_of(one)
    low = build.compare(one, build.zeros(kind), "GE", "SIGNED")
    high = build.compare(one, build.splat(kind, size), "LT", "SIGNED")
    inside = stablehlo.and_(low, high)
    dims = [place for place in range(len(shape)) if place not in numbers.windows]
    return stablehlo.broadcast_in_dim(
        build.with_shape(build.tensor_of(inside), shape), inside, ir.DenseI64ArrayAttr.get(dims)
    )


def _in_component(values: ir.Value, changed: ir.Value, vector: int, component: int) -> ir.Value:
    """One component of every index from `changed`, the others from `values`."""
    shape = build.shape_of(values)
    if vector == len(shape) or shape[vector] == 1:
        return changed
    kind = build.tensor_of(values)
    counted = stablehlo.iota(kind, vector)
    here = build.compare(counted, build.splat(kind, component), "EQ", "SIGNED")
    return stablehlo.select(here, changed, values)
