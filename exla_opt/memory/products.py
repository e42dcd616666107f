"""Products of matrices that XLA:CPU rewrites: of narrow numbers, and those that need no product at all."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from .block import Operation
from .builder import Builder
from .dots import dot_dims

_ROUND = traits_of("stablehlo.convert") | Trait.EXPENSIVE
_REDUCE = traits_of("stablehlo.reduce")


def add_wide(builder: Builder, product: Operation, origin: ir.Value) -> None:
    """Append a product in float32 or int32, with its narrower operands widened.

    origin: its result in the IR. If that is only read as float32, nothing is rounded in between.
    """
    operands = tuple(builder.widened(value, origin) if value in product.narrow else value for value in product.operands)
    [result] = product.results
    if result not in product.narrow:
        builder.add(replace(product, operands=operands, narrow=frozenset()))
        return
    if result == builder.of(origin) and is_read_wide(origin):
        builder.make_wide(result)
        builder.add(replace(product, operands=operands, narrow=frozenset()))
        return
    own = builder.fresh_wide(result, origin)
    if result in builder.block.merged:
        builder.block.merged.remove(result)
        builder.block.merged.add(own)
    builder.add(replace(product, operands=operands, results=(own,), narrow=frozenset()))
    add_rounded(builder, own, result)


def add_rounded(builder: Builder, wide: int, result: int) -> None:
    """Append the op that rounds wider floats to narrow ones."""
    builder.block.rounded[result] = wide
    builder.add(Operation("convert", _ROUND, (wide,), (result,)))


def is_read_wide(value: ir.Value) -> bool:
    """Whether a tensor is only read as float32."""
    readers = [use.owner.operation for use in value.uses]
    return bool(readers) and all(
        reader.name == "stablehlo.convert" and isinstance(element_type(reader.results[0]), ir.F32Type)
        for reader in readers
    )


def in_rows(builder: Builder, op: ir.Operation, operands: tuple[int, ...]) -> tuple[int, ...]:
    """The operands of a product, with copies of those that LAPACK leaves or needs in column-major order."""
    pairs = zip(op.operands, operands, strict=True)
    return tuple(builder.in_rows(number, value) if _is_in_columns(value) else number for value, number in pairs)


def _is_in_columns(value: ir.Value) -> bool:
    """Whether LAPACK computes the tensor, or reads it from a kernel that could write any order."""
    if defining_op(value, "stablehlo.custom_call") is not None:
        return True
    source = defining_op(value)
    if source is None or Trait.POINTWISE not in traits_of(source.name):
        return False
    return any(use.owner.operation.name == "stablehlo.custom_call" for use in value.uses)


def is_outer(op: ir.Operation, builder: Builder) -> bool:
    """Whether a dot sums nothing."""
    return all(builder.types.of(op.operands[0]).shape[dim] == 1 for dim in dot_dims(op, 0)[1])


def is_inner(op: ir.Operation, builder: Builder) -> bool:
    """Whether a batched dot has no dimension of a single operand, and both operands in one order."""
    dims = [dot_dims(op, side) for side in (0, 1)]
    shapes = [builder.types.of(value).shape for value in op.operands]
    batch, summed = dims[0]
    return (
        dims[0] == dims[1] and bool(batch) and bool(summed) and all(len(s) == len(batch) + len(summed) for s in shapes)
    )


def spread_and_multiply(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A dot that sums nothing is a multiplication of broadcast operands."""
    [result] = made.results
    shape, repeated = builder.block.shapes[result], []
    for value in made.operands:
        if prod(builder.block.shapes[value]) != prod(shape):
            copied = builder.fresh(op.results[0], shape, result)
            builder.add_plain("broadcast_in_dim", (value,), (copied,))
            value = copied
        repeated.append(value)
    builder.add_plain("multiply", tuple(repeated), made.results)


def multiply_and_reduce(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A dot without dimensions of a single operand is a multiplication and a sum."""
    shape = builder.types.of(op.operands[0]).shape  # the block may hold the operand as a matrix or a row
    lengths = tuple(shape[dim] for dim in dot_dims(op, 0)[1])
    factors = builder.fresh(op.results[0], shape, made.operands[0])
    builder.add_plain("multiply", made.operands, (factors,))
    builder.add(Operation("reduce", _REDUCE, (factors,), made.results, lengths=lengths))
