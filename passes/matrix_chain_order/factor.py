"""Scalar factors of a product: exact modulo 2^n for integers, near enough to 1 for floats."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.build import wrapped
from exla_opt.ir.values import Number

# Moved to another tensor, a factor further from 1 than this could cause overflow or lost digits.
_FARTHEST = 1e15


def product(kind: ir.Type, one: Number, other: Number) -> Number | None:
    """The product of two factors of tensors of the element type `kind`; None if it must not be moved.

    None for float factors that should not move (zero, infinite, NaN, very large or very small), and for booleans and
    complex numbers, whose products have rules of their own.
    """
    if isinstance(kind, ir.IntegerType):
        return None if kind.width == 1 else wrapped(kind, int(one) * int(other))
    if isinstance(kind, ir.ComplexType):
        return None
    value = float(one) * float(other)
    return value if 1 / _FARTHEST < abs(value) < _FARTHEST else None
