"""Keys: unsigned integers in the order of the elements that they stand for, and the inverse.

For negative floats all bits are inverted, for others the sign; for signed integers, the sign. For a descending order,
all bits are inverted once more.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits

from .order import Order


def key_bits(kind: ir.Type) -> int:
    """The width of the keys of an element type."""
    if isinstance(kind, ir.IntegerType):
        return max(int(kind.width), 8)
    return float_bits(kind)


def key_type(kind: ir.Type) -> ir.IntegerType:
    """The element type of the keys."""
    return ir.IntegerType.get_unsigned(key_bits(kind))


def keys_of(value: ir.Value, order: Order) -> ir.Value:
    """The keys of a tensor's elements, in its shape."""
    kind = element_type(value)
    if order.nan is not None:
        scalar = build.with_shape(build.tensor_of(value), [])
        nan = stablehlo.constant(ir.DenseElementsAttr(order.nan), results=[scalar])
        value = stablehlo.select(build.compare(value, value, "NE", "FLOAT"), _like(nan, value), value)
    if isinstance(kind, ir.IntegerType) and kind.width == 1:
        bits = build.convert(value, key_type(kind))
    else:
        bits = _bitcast(value, key_type(kind))
    sign = _number(bits, 1 << (key_bits(kind) - 1))
    if not isinstance(kind, ir.IntegerType):
        negative = build.compare(bits, sign, "GE", "UNSIGNED")
        bits = stablehlo.select(negative, stablehlo.not_(bits), stablehlo.or_(bits, sign))
    elif _has_sign(kind):
        bits = stablehlo.xor(bits, sign)
    return stablehlo.not_(bits) if order.descending else bits


def elements_of(keys: ir.Value, kind: ir.Type, order: Order) -> ir.Value:
    """The elements, of the type `kind`, that have these keys."""
    bits = stablehlo.not_(keys) if order.descending else keys
    sign = _number(bits, 1 << (key_bits(kind) - 1))
    if not isinstance(kind, ir.IntegerType):
        positive = build.compare(bits, sign, "GE", "UNSIGNED")
        bits = stablehlo.select(positive, stablehlo.xor(bits, sign), stablehlo.not_(bits))
    elif _has_sign(kind):
        bits = stablehlo.xor(bits, sign)
    if isinstance(kind, ir.IntegerType) and kind.width == 1:
        return build.convert(bits, kind)
    return _bitcast(bits, kind)


def _has_sign(kind: ir.IntegerType) -> bool:
    return not kind.is_unsigned and kind.width > 1


def _bitcast(value: ir.Value, kind: ir.Type) -> ir.Value:
    if element_type(value) == kind:
        return value
    return stablehlo.bitcast_convert(ir.RankedTensorType.get(build.shape_of(value), kind), value)


def _number(like: ir.Value, number: int) -> ir.Value:
    return build.splat(like.type, number)


def _like(scalar: ir.Value, value: ir.Value) -> ir.Value:
    return build.broadcast(scalar, build.shape_of(value))
