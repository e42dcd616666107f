"""Reduces of one tensor by one op."""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.reassociation import reassociation_of
from exla_opt.ir.rewrite import clone_on
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import plain_defining_op
from exla_opt.ops.reducers import is_identity, is_orderless, monoid_of

_SINGLE = 32
_RESHAPE, _BROADCAST = "stablehlo.reshape", "stablehlo.broadcast_in_dim"


def reduce_of_units(op: ir.Operation) -> ir.Value | None:
    """reduce(x, init) over sizes of 1 = reshape(x), where the init is the identity of the body"""
    shape = build.shape_of(op.operands[0])
    if any(shape[dim] != 1 for dim in integers(op, "dimensions", [])):
        return None
    name = monoid_of(op)
    # Any other init may be counted any number of times, according to the specification: XLA leaves it out here.
    if name is None or not is_identity(name, op.operands[1]):
        return None
    return stablehlo.reshape(op.results[0].type, op.operands[0])


def reduce_of_reshape(op: ir.Operation) -> ir.Value | None:
    """reduce(reshape(x)) = reshape(reduce(x)) to the bit, where every group of dimensions is reduced or none of it

    Sums and products of floats only if the reshape adds or removes sizes of 1: the order is the same then.
    """
    inner = plain_defining_op(op.operands[0], _RESHAPE)
    if inner is None:
        return None
    before, after = ([n for n in build.shape_of(value) if n != 1] for value in (inner.operands[0], inner.results[0]))
    return _reduce_of_reshape(op, inner) if before == after or is_orderless(op) else None


def may_be_summed_otherwise(op: ir.Operation) -> bool:
    """Whether a reduce in another shape is as exact: in a narrow float type, sums depend on XLA's vector lanes."""
    return is_orderless(op) or not 0 < float_bits(element_type(op.operands[0])) < _SINGLE


def reduce_of_reshape_in_another_order(op: ir.Operation) -> ir.Value | None:
    """reduce(reshape(x)) = reshape(reduce(x)), as above; XLA adds floats up in an order that depends on the shape"""
    inner = plain_defining_op(op.operands[0], _RESHAPE)
    return _reduce_of_reshape(op, inner) if inner is not None and may_be_summed_otherwise(op) else None


def _reduce_of_reshape(op: ir.Operation, inner: ir.Operation) -> ir.Value | None:
    if monoid_of(op) is None:
        return None
    before, after = build.shape_of(inner.operands[0]), build.shape_of(inner.results[0])
    away = set(integers(op, "dimensions", []))
    dims: list[int] = []
    for group in reassociation_of(before, after) or ():
        inside = [dim in away for dim in group.after if after[dim] != 1]
        if any(inside) and not all(inside):
            return None
        dims += group.before if any(inside) else ()
    if not dims:
        return None
    shape = [size for dim, size in enumerate(before) if dim not in dims]
    made = clone_on(op, [inner.operands[0], *list(op.operands)[1:]], shape, {"dimensions": dims})
    return made if made.type == op.results[0].type else stablehlo.reshape(op.results[0].type, made)


def reduce_of_broadcast(op: ir.Operation) -> ir.Value | None:
    """reduce(broadcast(x)) over repeated elements = reduce(broadcast(x)) without them, for max, min, and, or"""
    inner = plain_defining_op(op.operands[0], _BROADCAST)
    name = None if inner is None else monoid_of(op)
    if inner is None or name not in ("maximum", "minimum", "and", "or") or not is_identity(name, op.operands[1]):
        return None
    shape, source = build.shape_of(inner.results[0]), build.shape_of(inner.operands[0])
    where = integers(inner, "broadcast_dimensions", [])
    own = {dim for dim, size in zip(where, source, strict=True) if size == shape[dim]}
    away = integers(op, "dimensions", [])
    repeated = [dim for dim in away if dim not in own and shape[dim] > 1]
    if not repeated or prod(shape) == 0:
        return None
    fewer = build.with_shape(
        build.tensor_of(inner.results[0]), [1 if d in repeated else n for d, n in enumerate(shape)]
    )
    narrow = stablehlo.broadcast_in_dim(fewer, inner.operands[0], ir.DenseI64ArrayAttr.get(where))
    return clone_on(op, [narrow, *list(op.operands)[1:]], build.shape_of(op.results[0]), {})
