"""Slices, pads, reversals and concatenations."""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import plain_defining_op


def same_slice(op: ir.Operation) -> ir.Value | None:
    """slice(x), of all of x = x"""
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


def same_dynamic_slice(op: ir.Operation) -> ir.Value | None:
    """dynamic_slice(x), of all of x = x: no other start fits"""
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


def full_update(op: ir.Operation) -> ir.Value | None:
    """dynamic_update_slice(x, u) of u as large as x = u: no other start fits"""
    return op.operands[1] if op.operands[1].type == op.results[0].type else None


def slice_of_slice(op: ir.Operation) -> ir.Value | None:
    """slice(slice(x, s, t), u, v) = slice(x, s + t u, t v)"""
    inner = plain_defining_op(op.operands[0], op.name)
    if inner is None:
        return None
    starts, limits, strides = (
        list(zip(integers(inner, name, []), integers(op, name, []), strict=True))
        for name in ("start_indices", "limit_indices", "strides")
    )
    lengths = build.shape_of(op.results[0])
    stride = [first * second for first, second in strides]
    start = [
        first + step * second if length else 0
        for (first, second), (step, _), length in zip(starts, strides, lengths, strict=True)
    ]
    limit = [
        first + (length - 1) * step + 1 if length else 0
        for first, length, step in zip(start, lengths, stride, strict=True)
    ]
    return stablehlo.slice(inner.operands[0], *map(ir.DenseI64ArrayAttr.get, (start, limit, stride)))


def slice_of_pad(op: ir.Operation) -> ir.Value | None:
    """slice(pad(x), what x became) = x"""
    inner = plain_defining_op(op.operands[0], "stablehlo.pad")
    if inner is None or inner.operands[0].type != op.results[0].type:
        return None
    low, interior = (integers(inner, name, []) for name in ("edge_padding_low", "interior_padding"))
    starts, strides = (integers(op, name, []) for name in ("start_indices", "strides"))
    # A dimension of one element has no distance between elements.
    apart = zip(build.shape_of(op.results[0]), interior, strides, strict=True)
    same = starts == low and all(size == 1 or stride == between + 1 for size, between, stride in apart)
    return inner.operands[0] if same else None


def same_pad(op: ir.Operation) -> ir.Value | None:
    """pad(x) by nothing = x"""
    edges = [integers(op, name, []) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    return op.operands[0] if op.operands[0].type == op.results[0].type and not any(map(any, edges)) else None


def pad_of_pad(op: ir.Operation) -> ir.Value | None:
    """pad(pad(x, l, h), -l, -h) = x, where the first takes nothing away"""
    inner = plain_defining_op(op.operands[0], op.name)
    if inner is None or inner.operands[0].type != op.results[0].type:
        return None
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    first, second = ([integers(pad, name, []) for name in names] for pad in (inner, op))
    back = [-one for edges in first[:2] for one in edges] == [one for edges in second[:2] for one in edges]
    plain = not any(first[2] + second[2]) and min(first[0] + first[1], default=0) >= 0
    return inner.operands[0] if back and plain else None


def same_reverse(op: ir.Operation) -> ir.Value | None:
    """reverse(x) of sizes of 1 = x"""
    shape = build.shape_of(op.operands[0])
    return op.operands[0] if all(shape[dim] == 1 for dim in integers(op, "dimensions", [])) else None


def reverse_of_reverse(op: ir.Operation) -> ir.Value | None:
    """reverse(reverse(x, d), e) = reverse(x, those in only one of d and e)"""
    inner = plain_defining_op(op.operands[0], op.name)
    if inner is None:
        return None
    once = sorted({*integers(inner, "dimensions", [])} ^ {*integers(op, "dimensions", [])})
    return stablehlo.reverse(inner.operands[0], ir.DenseI64ArrayAttr.get(once)) if once else inner.operands[0]


def concatenate_of_nothing(op: ir.Operation) -> ir.Value | None:
    """concatenate(x, y, z) = concatenate(x, z), where y is empty"""
    full = [value for value in op.operands if prod(build.shape_of(value))]
    if not 0 < len(full) < len(op.operands):
        return None
    return stablehlo.ConcatenateOp(full, integer(op, "dimension"), results=[op.results[0].type]).result


def concatenate_of_one(op: ir.Operation) -> ir.Value | None:
    """concatenate(x) = x"""
    return op.operands[0] if len(op.operands) == 1 else None
