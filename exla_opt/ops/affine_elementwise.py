"""Elementwise ops on integers that are affine functions of the position (see `affine`)."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type

from .affine import Affine, added, between, constant, divided, scaled
from .comparisons import direction_of

# The known operands of an op, each in the shape of its result.
Operands = list[Affine | None]


def _sum(left: Affine, right: Affine) -> Affine:
    found = added(left, right)
    return found or between(left.lowest + right.lowest, left.highest + right.highest, left.shape)


def _difference(left: Affine, right: Affine) -> Affine:
    return _sum(left, scaled(right, -1))


def _least(left: Affine, right: Affine) -> Affine:
    """The smaller of two: one of them, if it is the same one everywhere, or a range between bounds."""
    difference = _difference(left, right)
    if difference.highest <= 0:
        return left
    if difference.lowest >= 0:
        return right
    return between(min(left.lowest, right.lowest), min(left.highest, right.highest), left.shape)


def _largest(left: Affine, right: Affine) -> Affine:
    return scaled(_least(scaled(left, -1), scaled(right, -1)), -1)


def _clamped(low: Affine, value: Affine, high: Affine) -> Affine:
    return _least(_largest(low, value), high)


def _sign(value: Affine) -> Affine:
    low, high = ((number > 0) - (number < 0) for number in (value.lowest, value.highest))
    return between(low, high, value.shape)


def _multiplied(left: Affine, right: Affine) -> Affine | None:
    if right.number is not None:
        return scaled(left, right.number)
    return None if left.number is None else scaled(right, left.number)


def _of_division(op: ir.Operation, operands: Operands) -> Affine | None:
    left, right = operands
    if left is None or right is None or right.number is None or not isinstance(_element(op), ir.IntegerType):
        return None
    found, number = divided(left, right.number), right.number
    if found is not None:
        return found[op.name == "stablehlo.remainder"]
    if op.name != "stablehlo.remainder" or number < 1:
        return None
    # It has the sign of the dividend.
    low, high = max(left.lowest, 1 - number), min(left.highest, number - 1)
    return between(min(low, 0), max(high, 0), left.shape)


def _element(op: ir.Operation) -> ir.Type:
    return element_type(op.results[0])


def _of_convert(op: ir.Operation, operands: Operands) -> Affine | None:
    return operands[0]  # unchanged in the other type, or unknown


def _of_compare(op: ir.Operation, operands: Operands) -> Affine | None:
    """True or false, if it is the same everywhere."""
    left, right = operands
    if left is None or right is None or not isinstance(element_type(op.operands[0]), ir.IntegerType):
        return None
    difference = _difference(left, right)
    low, high = difference.lowest, difference.highest
    sure, never = {
        "LT": (high < 0, low >= 0),
        "LE": (high <= 0, low > 0),
        "GT": (low > 0, high <= 0),
        "GE": (low >= 0, high < 0),
        "EQ": (low == high == 0, low > 0 or high < 0),
        "NE": (low > 0 or high < 0, low == high == 0),
    }[direction_of(op)]
    return _everywhere(left, int(sure)) if sure or never else None


def _everywhere(like: Affine, number: int) -> Affine:
    return constant(number, like.shape)


def _of_truth(op: ir.Operation, operands: Operands) -> Affine | None:
    """`and` is false if an operand is, `or` true, whatever the other one is."""
    if str(_element(op)) != "i1":
        return None
    decisive = int(op.name == "stablehlo.or")
    known = [each for each in operands if each is not None and each.number is not None]
    decided = next((each for each in known if each.number == decisive), None)
    if decided is not None or len(known) < len(operands):
        return decided
    return known[0]


def _of_not(op: ir.Operation, operands: Operands) -> Affine | None:
    value = operands[0]
    if value is None or value.number is None or str(_element(op)) != "i1":
        return None
    return _everywhere(value, 1 - value.number)


def _when_known(compute: Callable[..., Affine | None]) -> Callable[[ir.Operation, Operands], Affine | None]:
    """The rule of an op whose result is unknown if an operand is."""

    def rule(_: ir.Operation, operands: Operands) -> Affine | None:
        return compute(*operands) if all(operand is not None for operand in operands) else None

    return rule


ELEMENTWISE: dict[str, Callable[[ir.Operation, Operands], Affine | None]] = {
    "stablehlo.add": _when_known(_sum),
    "stablehlo.and": _of_truth,
    "stablehlo.clamp": _when_known(_clamped),
    "stablehlo.compare": _of_compare,
    "stablehlo.convert": _of_convert,
    "stablehlo.divide": _of_division,
    "stablehlo.maximum": _when_known(_largest),
    "stablehlo.minimum": _when_known(_least),
    "stablehlo.multiply": _when_known(_multiplied),
    "stablehlo.negate": _when_known(lambda value: scaled(value, -1)),
    "stablehlo.not": _of_not,
    "stablehlo.or": _of_truth,
    "stablehlo.remainder": _of_division,
    "stablehlo.sign": _when_known(_sign),
    "stablehlo.subtract": _when_known(_difference),
}
