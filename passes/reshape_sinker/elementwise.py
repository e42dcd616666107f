"""Elementwise ops of reshaped and transposed tensors."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.reassociation import reassociation_of
from exla_opt.ir.rewrite import Pattern, clone_on
from exla_opt.ir.types import Types
from exla_opt.ir.values import plain_defining_op, splat_value

from .moved import only_for

_BROADCAST = "stablehlo.broadcast_in_dim"


def elementwise_of(name: str, attribute: str | None, threshold: int) -> Pattern:
    """The pattern f(m(x), m(y), ...) = m(f(x, y, ...)) for one kind of movement m, a reshape or a transpose."""
    types = Types()

    def pattern(op: ir.Operation) -> ir.Value | None:
        """f(m(x), m(y), ...) = m(f(x, y, ...)), above the threshold; broadcasts are broadcast before m too"""
        if len(op.results) != 1 or types.of(op.results[0]).bytes <= threshold:
            return None
        found = [only_for(operand, name, op) for operand in op.operands]
        # The predicate of a select and the bounds of a clamp may be scalars, which stay unchanged.
        full = build.shape_of(op.results[0])
        found = [
            inner if build.shape_of(value) == full else None for inner, value in zip(found, op.operands, strict=True)
        ]
        moved = [inner for inner in found if inner is not None]
        if not moved or len({str(_key(inner, attribute)) for inner in moved}) > 1:
            return None
        pairs = list(zip(op.operands, found, strict=True))
        if not all(inner is not None or _is_repeated(operand, moved[0], attribute) for operand, inner in pairs):
            return None
        shape = build.shape_of(moved[0].operands[0])
        operands = [
            _before(operand, moved[0], attribute) if inner is None else inner.operands[0] for operand, inner in pairs
        ]
        made = clone_on(op, operands, shape, {})
        if attribute is None:
            return stablehlo.reshape(op.results[0].type, made)
        return stablehlo.transpose(made, ir.DenseI64ArrayAttr.get(integers(moved[0], attribute, [])))

    return pattern


def _key(inner: ir.Operation, attribute: str | None) -> tuple[list[int], list[int]]:
    return build.shape_of(inner.operands[0]), integers(inner, attribute, []) if attribute else []


def _is_repeated(operand: ir.Value, moved: ir.Operation, attribute: str | None) -> bool:
    """Whether the operand can be broadcast before the movement as well: a number, or a tensor along entire groups."""
    if not build.shape_of(operand) or splat_value(operand) is not None:
        return True
    spread = plain_defining_op(operand, _BROADCAST)
    return spread is not None and (attribute is not None or _dims_before(spread, moved) is not None)


def _before(operand: ir.Value, moved: ir.Operation, attribute: str | None) -> ir.Value:
    """The operand before the movement."""
    shape = build.shape_of(moved.operands[0])
    if not build.shape_of(operand):
        return operand
    kind = build.with_shape(build.tensor_of(operand), shape)
    number = splat_value(operand)
    spread = plain_defining_op(operand, _BROADCAST)
    if number is not None and (spread is None or build.shape_of(spread.operands[0])):
        return build.splat(kind, number)
    assert spread is not None
    with ir.InsertionPoint(spread):  # where it was, so that a second run changes nothing
        return _spread_before(spread, moved, attribute, kind)


def _spread_before(
    spread: ir.Operation, moved: ir.Operation, attribute: str | None, kind: ir.RankedTensorType
) -> ir.Value:
    """What a broadcast spreads, in the shape before the movement. kind: the type of the result."""
    narrow = spread.operands[0]
    if not build.shape_of(narrow):
        return stablehlo.broadcast_in_dim(kind, narrow, ir.DenseI64ArrayAttr.get([]))
    if attribute is not None:
        permutation = integers(moved, attribute, [])
        dims = [permutation[dim] for dim in integers(spread, "broadcast_dimensions", [])]
        return stablehlo.broadcast_in_dim(kind, narrow, ir.DenseI64ArrayAttr.get(dims))
    dims_before = _dims_before(spread, moved)
    assert dims_before is not None
    small = build.with_shape(kind, [kind.shape[dim] for dim in dims_before])
    return stablehlo.broadcast_in_dim(kind, stablehlo.reshape(small, narrow), ir.DenseI64ArrayAttr.get(dims_before))


def _dims_before(spread: ir.Operation, moved: ir.Operation) -> list[int] | None:
    """The dimensions of a broadcast tensor before a reshape; None if it ends within a group."""
    before, after = build.shape_of(moved.operands[0]), build.shape_of(moved.results[0])
    where = integers(spread, "broadcast_dimensions", [])
    own = [dim for dim, size in zip(where, build.shape_of(spread.operands[0]), strict=True) if size != 1]
    if own != sorted(own):
        return None
    dims: list[int] = []
    for group in reassociation_of(before, after) or ():
        inside = [dim in own for dim in group.after if after[dim] != 1]
        if any(inside) and not all(inside):
            return None
        if any(inside):
            dims += [dim for dim in group.before if before[dim] != 1]
    return dims
