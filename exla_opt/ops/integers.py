"""Scalar integer ops on arrays of numbers: the values of an index in all trips of a loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from jaxlib.mlir import ir

from exla_opt.ir.types import element_type

from .comparisons import direction_of

Numbers = npt.NDArray[np.int64]


def _divide(left: Numbers, right: Numbers) -> Numbers:
    quotient: Numbers = (np.sign(left) * np.sign(right)) * (np.abs(left) // np.abs(right))
    return quotient


_BINARY: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.divide": _divide,
    "stablehlo.remainder": np.fmod,
}
_ON_TRUTH: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "stablehlo.and": np.bitwise_and,
    "stablehlo.or": np.bitwise_or,
    "stablehlo.xor": np.bitwise_xor,
}
_COMPARED: dict[str, Callable[[Numbers, Numbers], npt.NDArray[np.bool_]]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
_DIVIDES = ("stablehlo.divide", "stablehlo.remainder")


def fits(numbers: Numbers, kind: ir.IntegerType) -> bool:
    """Whether nothing overflows, in the type or in the type of this computation."""
    bits = min(kind.width, 31)
    low, high = (0, 2**bits) if kind.is_unsigned or kind.width == 1 else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    if kind.width > 31:
        low, high = (0 if kind.is_unsigned else -(2**31)), 2**31
    return not numbers.size or bool(numbers.min() >= low and numbers.max() < high)


def run_integers(op: ir.Operation, operands: list[Numbers]) -> Numbers | None:
    """The result of a scalar op on integers; None for ops that do not occur in indices."""
    name = op.name
    if name in _BINARY and not (name in _DIVIDES and not operands[1].all()):
        return _BINARY[name](*operands)
    if name in _ON_TRUTH and str(element_type(op.results[0])) == "i1":
        return _ON_TRUTH[name](*operands)
    if name in ("stablehlo.convert", "stablehlo.reshape"):
        return operands[0]
    if name == "stablehlo.negate":
        return -operands[0]
    if name == "stablehlo.not" and str(element_type(op.results[0])) == "i1":
        return 1 - operands[0]
    if name == "stablehlo.compare" and direction_of(op) in _COMPARED:
        return _COMPARED[direction_of(op)](*operands).astype(np.int64)
    if name == "stablehlo.select":
        return np.where(operands[0] != 0, operands[1], operands[2])
    if name == "stablehlo.clamp":
        low, number, high = operands
        return np.minimum(np.maximum(number, low), high)
    return None
