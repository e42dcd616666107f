"""Tests whether a number is the larger, or the smaller, of itself and another."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import element_type
from exla_opt.ir.values import plain_defining_op

_ORDERS = {"stablehlo.maximum": "GE", "stablehlo.minimum": "LE"}
_TYPE = "compare_type"


def equal_to_extreme(op: ir.Operation) -> ir.Value | None:
    """(x == max(x, y)) = (x >= y), and (x == min(x, y)) = (x <= y)

    Also for zeros of both signs; for a NaN, both are false.
    """
    if not _tests_equality(op) or isinstance(element_type(op.operands[0]), ir.ComplexType):
        return None
    left, right = op.operands
    for one, extreme in ((left, right), (right, left)):
        for name, order in _ORDERS.items():
            made = plain_defining_op(extreme, name)
            if made is not None and one in (sides := list(made.operands)):
                other = sides[1 - sides.index(one)]
                kind = op.attributes.get(_TYPE)
                return stablehlo.compare(one, other, stablehlo.ComparisonDirectionAttr.get(order), compare_type=kind)
    return None


def _tests_equality(op: ir.Operation) -> bool:
    """Whether the op tests for equality, not by the total order of floats, in which zeros of both signs differ."""
    if stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value != "EQ":
        return False
    return _TYPE not in op.attributes or stablehlo.ComparisonTypeAttr(op.attributes[_TYPE]).value != "TOTALORDER"
