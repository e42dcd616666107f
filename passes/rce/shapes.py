"""Converts, reshapes, transposes and broadcasts."""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import plain_defining_op
from exla_opt.ops.types import holds

_RESHAPE, _TRANSPOSE, _BROADCAST = "stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"


def _same_type(op: ir.Operation) -> bool:
    return bool(op.operands[0].type == op.results[0].type)


def _units_aside(value: ir.Value) -> list[int]:
    return [size for size in build.shape_of(value) if size != 1]


def same_convert(op: ir.Operation) -> ir.Value | None:
    """convert(x), of x's own type = x"""
    return op.operands[0] if _same_type(op) else None


def convert_of_wider(op: ir.Operation) -> ir.Value | None:
    """convert(convert(x)) = convert(x), where the first loses nothing and the second does to x what it did before"""
    inner = plain_defining_op(op.operands[0], op.name)
    if inner is None:
        return None
    source = inner.operands[0]
    narrow, wide, last = (element_type(value) for value in (source, inner.results[0], op.results[0]))
    if not holds(wide, narrow) or not _converts_alike(narrow, wide, last):
        return None
    return build.convert(source, last)


def _converts_alike(narrow: ir.Type, wide: ir.Type, last: ir.Type) -> bool:
    """Whether a number of both types is converted to the same number of the last one.

    Integers that are too large for an integer type are wrapped, floats are clamped. Conversions to floats of 16 bits or
    fewer go through 32 bits.
    """
    if not isinstance(narrow, ir.IntegerType):
        return float_bits(narrow) != 8  # XLA's rounding of 8-bit floats is not known
    if isinstance(last, ir.IntegerType):
        return isinstance(wide, ir.IntegerType) or last.width == 1 or holds(last, narrow)
    return str(last) in ("f32", "f64") or holds(ir.F32Type.get(), narrow)


def same_reshape(op: ir.Operation) -> ir.Value | None:
    """reshape(x), of x's own shape = x"""
    return op.operands[0] if _same_type(op) else None


def reshape_of_reshape(op: ir.Operation) -> ir.Value | None:
    """reshape(reshape(x)) = reshape(x)"""
    inner = plain_defining_op(op.operands[0], _RESHAPE)
    return None if inner is None else stablehlo.reshape(op.results[0].type, inner.operands[0])


def same_transpose(op: ir.Operation) -> ir.Value | None:
    """transpose(x, 0 1 2 ...) = x"""
    permutation = integers(op, "permutation", [])
    return op.operands[0] if permutation == sorted(permutation) else None


def transpose_of_transpose(op: ir.Operation) -> ir.Value | None:
    """transpose(transpose(x, p), q) = transpose(x, p[q])"""
    inner = plain_defining_op(op.operands[0], _TRANSPOSE)
    if inner is None:
        return None
    first, second = integers(inner, "permutation", []), integers(op, "permutation", [])
    return stablehlo.transpose(inner.operands[0], ir.DenseI64ArrayAttr.get([first[dim] for dim in second]))


def transpose_of_units(op: ir.Operation) -> ir.Value | None:
    """transpose(x) that moves only sizes of 1 = reshape(x)"""
    shape = build.shape_of(op.operands[0])
    moved = [dim for dim in integers(op, "permutation", []) if shape[dim] != 1]
    return stablehlo.reshape(op.results[0].type, op.operands[0]) if moved == sorted(moved) else None


def same_broadcast(op: ir.Operation) -> ir.Value | None:
    """broadcast(x) that keeps every element once and in order = x, or reshape(x)"""
    if prod(build.shape_of(op.operands[0])) != prod(build.shape_of(op.results[0])):
        return None
    shape = build.shape_of(op.operands[0])
    placed = [dim for dim, size in zip(integers(op, "broadcast_dimensions", []), shape, strict=True) if size != 1]
    if placed != sorted(placed) or _units_aside(op.operands[0]) != _units_aside(op.results[0]):
        return None
    return op.operands[0] if _same_type(op) else stablehlo.reshape(op.results[0].type, op.operands[0])


def broadcast_of_broadcast(op: ir.Operation) -> ir.Value | None:
    """broadcast(broadcast(x, d), e) = broadcast(x, e[d])"""
    inner = plain_defining_op(op.operands[0], _BROADCAST)
    if inner is None:
        return None
    first, second = (integers(each, "broadcast_dimensions", []) for each in (inner, op))
    dims = ir.DenseI64ArrayAttr.get([second[dim] for dim in first])
    return stablehlo.broadcast_in_dim(op.results[0].type, inner.operands[0], dims)


def broadcast_of_transpose(op: ir.Operation) -> ir.Value | None:
    """broadcast(transpose(x, p), d) = broadcast(x, d[q]), where q undoes p"""
    inner = plain_defining_op(op.operands[0], _TRANSPOSE)
    if inner is None:
        return None
    permutation, where = integers(inner, "permutation", []), integers(op, "broadcast_dimensions", [])
    dims = [where[permutation.index(dim)] for dim in range(len(where))]
    return stablehlo.broadcast_in_dim(op.results[0].type, inner.operands[0], ir.DenseI64ArrayAttr.get(dims))


def transpose_of_broadcast(op: ir.Operation) -> ir.Value | None:
    """transpose(broadcast(x, d), p) = broadcast(x, q[d]), where q undoes p"""
    inner = plain_defining_op(op.operands[0], _BROADCAST)
    if inner is None:
        return None
    permutation = integers(op, "permutation", [])
    dims = [permutation.index(dim) for dim in integers(inner, "broadcast_dimensions", [])]
    return stablehlo.broadcast_in_dim(op.results[0].type, inner.operands[0], ir.DenseI64ArrayAttr.get(dims))


def broadcast_of_reshape(op: ir.Operation) -> ir.Value | None:
    """broadcast(reshape(x), d) = broadcast(x, the d of x's own), where the reshape only adds sizes of 1"""
    inner = plain_defining_op(op.operands[0], _RESHAPE)
    if inner is None:
        return None
    source = inner.operands[0]
    if 1 in build.shape_of(source) or build.shape_of(source) != _units_aside(inner.results[0]):
        return None
    where = integers(op, "broadcast_dimensions", [])
    kept = [dim for dim, size in zip(where, build.shape_of(inner.results[0]), strict=True) if size != 1]
    return stablehlo.broadcast_in_dim(op.results[0].type, source, ir.DenseI64ArrayAttr.get(kept))
