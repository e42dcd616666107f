"""Ops on tensors without their dimensions of size 1, which are equal to the ops on the tensors as they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.rewrite import Pattern, clone_on
from exla_opt.ir.values import plain_defining_op
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.passes.reshape_sinker.dots import Side, dot_of, sides_of


def has_units(op: ir.Operation) -> bool:
    """Whether an op has dimensions of size 1, and a tensor of more than one element."""
    shapes = [build.shape_of(value) for value in (*op.results, *op.operands)]
    return any(1 in shape for shape in shapes) and max(map(prod, shapes)) > 1


def squeezed_dot(op: ir.Operation) -> ir.Value | None:
    """dot(x, y) = reshape(dot(reshape(x), reshape(y))), where either has a dimension of its own, and one to sum over

    Or where an operand is reshaped from a tensor without dimensions of 1, and binds none: reshape-sinker would find
    that reshape in a second run.
    """
    kept = [(side, _kept(side.value)) for side in sides_of(op)]
    numbers = [(side.value, _places(side.batch, dims), _places(side.contracted, dims)) for side, dims in kept]
    multiplies = all(
        contracted and len(dims) > len(batch) + len(contracted)
        for (_, dims), (_, batch, contracted) in zip(kept, numbers, strict=True)
    )
    if not multiplies and not any(_is_reshaped(side) for side, _ in kept):
        return None
    left, right = (Side(_squeeze(value), batch, contracted) for value, batch, contracted in numbers)
    return _as_before(op, dot_of(op, [left, right]))


def squeezed_reduce(op: ir.Operation) -> ir.Value | None:
    """reduce(x) = reshape(reduce(reshape(x))), of one tensor, where it reduces a dimension of more than one element"""
    dims = _places(integers(op, "dimensions", []), _kept(op.operands[0]))
    if len(op.results) != 1 or not dims:
        return None
    operand, start = op.operands
    return _as_before(op, clone_on(op, [_squeeze(operand), start], _shape(op.results[0]), {"dimensions": dims}))


def squeezed_broadcast(op: ir.Operation) -> ir.Value | None:
    """broadcast(x) = reshape(broadcast(reshape(x)))"""
    [operand], [result] = op.operands, op.results
    where = integers(op, "broadcast_dimensions", [])
    dims = _places([where[dim] for dim in _kept(operand)], _kept(result))
    kind = build.with_shape(build.tensor_of(result), _shape(result))
    return _as_before(op, stablehlo.broadcast_in_dim(kind, _squeeze(operand), ir.DenseI64ArrayAttr.get(dims)))


def squeezed_transpose(op: ir.Operation) -> ir.Value | None:
    """transpose(x) = reshape(transpose(reshape(x))), or reshape(x) where only dimensions of 1 move"""
    [operand] = op.operands
    permutation = _places(integers(op, "permutation", []), _kept(operand))
    made = _squeeze(operand)
    if permutation != sorted(permutation):
        made = stablehlo.transpose(made, ir.DenseI64ArrayAttr.get(permutation))
    return _as_before(op, made)


def squeezed_function(op: ir.Operation) -> ir.Value | None:
    """f(x, ...) = reshape(f(reshape(x), ...)), of elements; the predicate of a select and bounds may be numbers"""
    return _as_before(op, clone_on(op, [_squeeze(operand) for operand in op.operands], _shape(op.results[0]), {}))


SQUEEZED: dict[str, Pattern] = {
    **dict.fromkeys(STABLEHLO_POINTWISE, squeezed_function),
    "stablehlo.dot_general": squeezed_dot,
    "stablehlo.reduce": squeezed_reduce,
    "stablehlo.broadcast_in_dim": squeezed_broadcast,
    "stablehlo.transpose": squeezed_transpose,
}


def _is_reshaped(side: Side) -> bool:
    """Whether an operand has dimensions of 1 of its own alone, and is reshaped from a tensor without them."""
    source, shape = _source(side.value), build.shape_of(side.value)
    if source is None or source == side.value:
        return False
    return all(shape[dim] != 1 for dim in (*side.batch, *side.contracted))


def _kept(value: ir.Value) -> list[int]:
    """The dimensions of other sizes than 1."""
    return [dim for dim, size in enumerate(build.shape_of(value)) if size != 1]


def _shape(value: ir.Value) -> list[int]:
    return [size for size in build.shape_of(value) if size != 1]


def _places(dims: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Those of the dimensions that are kept, as numbers among the kept ones."""
    return [kept.index(dim) for dim in dims if dim in kept]


def _squeeze(value: ir.Value) -> ir.Value:
    """The value without its dimensions of 1: what it was reshaped from, if that has none."""
    source = _source(value)
    if source is not None:
        return source
    return stablehlo.reshape(build.with_shape(build.tensor_of(value), _shape(value)), value)


def _source(value: ir.Value) -> ir.Value | None:
    """The value itself, or what it was reshaped from, without dimensions of 1; None if there is no such tensor."""
    shape = _shape(value)
    source: ir.Value | None = value
    while source is not None and _shape(source) == shape:
        if build.shape_of(source) == shape:
            return source
        inner = plain_defining_op(source, "stablehlo.reshape")
        source = None if inner is None else inner.operands[0]
    return None


def _as_before(op: ir.Operation, value: ir.Value) -> ir.Value:
    return value if value.type == op.results[0].type else stablehlo.reshape(op.results[0].type, value)
