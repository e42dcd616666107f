"""Tensors with one value everywhere, computed from constants alone: XLA:GPU writes none of them.

Its AlgebraicSimplifier computes on the scalar and broadcasts the result, HloConstantFolding then folds the scalar, and
selects, sums and products with known numbers are simplified in turn. So if the parameter of a distribution is one
number, the branches for other numbers disappear.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf, isnan, nan, sqrt
from struct import pack, unpack

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import is_splat
from exla_opt.ir.types import element_type
from exla_opt.ir.values import Number, splat_value
from exla_opt.ops.traits import Trait, traits_of

_MOVED = frozenset("stablehlo." + name for name in ("broadcast_in_dim", "reshape", "slice", "transpose"))
_COMPARED: dict[str, Callable[[Number, Number], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
_COMPUTED: dict[str, Callable[..., Number]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
    "negate": operator.neg,
    "abs": abs,
    "sqrt": lambda number: sqrt(number) if number >= 0 else nan,
    "rsqrt": lambda number: 1 / sqrt(number) if number > 0 else inf,
    "select": lambda asked, one, other: one if asked else other,
    "is_finite": lambda number: not isnan(number) and abs(number) != inf,
}
# For booleans only: the bits of integers are not tracked.
_LOGICAL: dict[str, Callable[..., Number]] = {
    "and": min,
    "or": max,
    "xor": operator.ne,
    "not": operator.not_,
}


class Constants:
    """The known constants among the tensors of a function, and of the bodies inside it.

    number: for each tensor with one value everywhere, that number; None if only XLA knows it.
    """

    def __init__(self) -> None:
        self.number: dict[ir.Value, Number | None] = {}

    def note(self, op: ir.Operation) -> bool:
        """Whether the result of an op has one value everywhere; recorded for later ops."""
        if len(op.results) != 1 or len(op.regions):
            return False
        if op.name == "stablehlo.constant":
            if is_splat(op):
                self.number[op.results[0]] = splat_value(op.results[0])
            return False
        if Trait.POINTWISE not in traits_of(op.name) and op.name not in _MOVED:
            return False
        side = self.side(op)
        read = op.operands if side is None else [op.operands[side]]
        if not len(read) or any(value not in self.number for value in read):
            return False
        numbers = [self.number[value] for value in read]
        moved = side is not None or op.name in _MOVED
        self.number[op.results[0]] = numbers[0] if moved else _computed(op, numbers)
        return True

    def side(self, op: ir.Operation) -> int | None:
        """The operand that an op's result equals whatever the other operands are; None if not known."""
        name, numbers = op.name.rpartition(".")[2], [self.number.get(value) for value in op.operands]
        if name == "select":
            return None if numbers[0] is None else 1 if numbers[0] else 2
        if name in ("and", "or") and _is_truth(op.results[0]):
            decided = next((side for side, number in enumerate(numbers) if number == (name == "or")), None)
            return _other(numbers, int(name == "and")) if decided is None else decided
        if name in ("add", "multiply"):
            return _other(numbers, int(name == "multiply"))
        if name in ("subtract", "divide", "power"):
            return 0 if numbers[1] == int(name != "subtract") else None
        return None


def _other(numbers: list[Number | None], neutral: int) -> int | None:
    """The operand that is combined with the neutral number."""
    return next((1 - side for side in (1, 0) if numbers[side] == neutral), None)


def _computed(op: ir.Operation, numbers: list[Number | None]) -> Number | None:
    """The result of an elementwise op on known numbers; None if it is not evaluated here."""
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return None
    name = op.name.rpartition(".")[2]
    if name == "compare":
        direction = stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value
        return int(_COMPARED[direction](*known))
    if name == "divide":
        return _rounded(op.results[0], known[0] / known[1]) if _is_float(op.results[0]) and known[1] else None
    if name == "convert" and _is_float(op.results[0]):
        return _rounded(op.results[0], float(known[0]))
    table = _LOGICAL if name in _LOGICAL and _is_truth(op.results[0]) else _COMPUTED
    return _rounded(op.results[0], table[name](*known)) if name in table else None


def _rounded(value: ir.Value, number: Number) -> Number | None:
    """A number rounded to a tensor's type; None for an integer that may not fit, and for narrow floats."""
    kind = element_type(value)
    if isinstance(kind, ir.F64Type):
        return number
    if isinstance(kind, ir.F32Type):
        try:
            return float(unpack("f", pack("f", number))[0])
        except OverflowError:
            return inf if number > 0 else -inf
    if isinstance(kind, ir.IntegerType):
        fits = 0 <= number < 2 ** (kind.width - (not kind.is_unsigned)) if kind.width > 1 else True
        return int(number) if fits else None
    return None


def _is_truth(value: ir.Value) -> bool:
    kind = element_type(value)
    return isinstance(kind, ir.IntegerType) and kind.width == 1


def _is_float(value: ir.Value) -> bool:
    return isinstance(element_type(value), ir.FloatType)
