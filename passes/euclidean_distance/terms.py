"""A formula expanded: the sum of products of smaller tensors that equals it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

from exla_opt.ir.values import Number

from .expression import Expression

# Distances and their gradients have no more terms than this.
_MOST_TERMS = 12
_MOST_FACTORS = 8
# Points are squared before they are multiplied: factors further from 1 would overflow more.
_FARTHEST = 1e15
# Deeper formulas have more terms than that, or consist of parts that were read for other formulas.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Factor:
    """A tensor that lacks a dimension of the space: `expression`, or its reciprocal if `inverted`.

    centre: a tensor whose midpoint over the dimensions `over` is subtracted (sign -1) or added (sign 1) first.
    Differences do not change if both sides are shifted alike, and the expansion then does not cancel far from the
    origin.
    """

    expression: Expression
    inverted: bool = False
    centre: Expression | None = None
    over: frozenset[int] = frozenset()
    sign: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """coefficient * the product of the factors."""

    coefficient: Number
    factors: tuple[Factor, ...] = ()

    @property
    def differences(self) -> int:
        """How many of its factors are one side of a difference, which may cancel with those of other terms."""
        return sum(factor.centre is not None for factor in self.factors)


@dataclass(slots=True)
class Expansion:
    """Terms of one formula in `space`; `refusal` says why there are none.

    floats: whether its numbers are real. Integers are exact modulo 2^n, and are not centred.
    converts: whether the formula may also round between its ops: it will not be expanded.
    is_big: whether a tensor with these dimensions should be avoided too.
    opened: the parts of the formula that were expanded: their tensors are not needed.
    """

    space: frozenset[int]
    floats: bool
    converts: bool
    is_big: Callable[[frozenset[int]], bool]
    refusal: str = ""
    order: dict[Factor, int] = field(default_factory=dict)
    opened: dict[Expression, None] = field(default_factory=dict)
    known: dict[Expression, list[Term]] = field(default_factory=dict)
    depth: int = 0

    def terms(self, expression: Expression) -> list[Term]:
        """The terms that add up to the expression; [] with a `refusal` if it is no polynomial of smaller tensors."""
        if self.refusal:
            return []
        found = self.known.get(expression)
        if found is None and self.depth == _DEEPEST:
            self.refusal = "it has too many terms when multiplied out"
            return []
        if found is None:
            self.depth += 1
            found = self.known[expression] = self._read(expression)
            self.depth -= 1
        return found

    def _read(self, expression: Expression) -> list[Term]:
        if expression.name == "constant":
            return [Term(expression.constant)]
        if expression.dims == self.space:
            return self._opened(expression)
        smaller = self._smaller(expression) if expression.name and self.is_big(expression.dims) else []
        return smaller or [self._term(1, (Factor(expression),))]

    def _smaller(self, expression: Expression) -> list[Term]:
        """The terms of a big part that itself lacks a dimension; [] if it cannot be expanded."""
        part = Expansion(expression.dims, self.floats, self.converts, self.is_big, order=self.order, depth=self.depth)
        found = part.terms(expression)
        if part.refusal:
            return []
        self.opened |= part.opened
        return found

    def _opened(self, expression: Expression) -> list[Term]:
        self.opened[expression] = None
        if expression.name in ("add", "subtract") and (moved := self._difference(expression)):
            return moved
        if is_square(expression):
            self.opened[expression.children[0]] = None  # an abs without effect
            once = self.terms(squared(expression))
            return self.product(once, once)
        parts = [self.terms(child) for child in expression.children]
        if self.refusal:
            return []
        if expression.name == "convert" and self.converts:
            return parts[0]
        if expression.name == "add":
            return self._collected(parts[0] + parts[1])
        if expression.name == "subtract":
            return self._collected(parts[0] + [Term(-term.coefficient, term.factors) for term in parts[1]])
        if expression.name == "negate":
            return [Term(-term.coefficient, term.factors) for term in parts[0]]
        if expression.name == "multiply":
            return self.product(parts[0], parts[1])
        if expression.name == "divide" and (inverse := self._inverse(expression.children[1])):
            return self.product(parts[0], [inverse])
        self.refusal = _why_not(expression)
        return []

    def _difference(self, expression: Expression) -> list[Term]:
        """a - b as (a - c) - (b - c), a + b as (a + c) + (b - c), where c is the midpoint of b."""
        left, right = expression.children
        both = expression.dims not in (left.dims, right.dims)
        if not self.floats or not both or not left.dims or not right.dims:
            return []
        sign = -1 if expression.name == "subtract" else 1
        over = right.dims - left.dims
        moved = Factor(left, False, right, over, sign), Factor(right, False, right, over, -1)
        return [self._term(1, (moved[0],)), self._term(sign, (moved[1],))]

    def _inverse(self, expression: Expression) -> Term | None:
        if not self.floats:
            return None  # a quotient of integers is truncated
        if expression.name == "constant":
            return Term(1 / expression.constant) if expression.constant else None
        return self._term(1, (Factor(expression, True),)) if expression.dims != self.space else None

    def product(self, left: list[Term], right: list[Term]) -> list[Term]:
        """The terms of the product of two sums of terms."""
        if self.refusal:
            return []
        products = [
            self._term(one.coefficient * other.coefficient, one.factors + other.factors)
            for one in left
            for other in right
        ]
        return self._collected(products)

    def _collected(self, terms: list[Term]) -> list[Term]:
        sums: dict[tuple[Factor, ...], Number] = {}
        for term in terms:
            sums[term.factors] = sums.get(term.factors, 0) + term.coefficient
        if len(sums) > _MOST_TERMS or any(len(factors) > _MOST_FACTORS for factors in sums):
            self.refusal = "it has too many terms when multiplied out"
            return []
        kept = {factor for factors, coefficient in sums.items() if coefficient for factor in factors}
        gone = {factor for factors, coefficient in sums.items() if not coefficient for factor in factors}
        if self.floats and (gone - kept or not all(map(isfinite, sums.values()))):
            self.refusal = "an infinity or NaN would be lost in the expansion"
            return []
        if self.floats and any(not 1 / _FARTHEST <= abs(each) <= _FARTHEST for each in sums.values() if each):
            self.refusal = "it multiplies by a number so large or so small that the points alone might overflow"
            return []
        return [Term(coefficient, factors) for factors, coefficient in sums.items() if coefficient]

    def _term(self, coefficient: Number, factors: tuple[Factor, ...]) -> Term:
        for factor in factors:
            self.order.setdefault(factor, len(self.order))
        return Term(coefficient, tuple(sorted(factors, key=self.order.__getitem__)))


def is_square(expression: Expression) -> bool:
    """Whether the expression is x * x, or x to the power of exactly 2."""
    if expression.name == "square":
        return True
    if expression.name == "multiply":
        return expression.children[0] is expression.children[1]
    power = expression.children[1] if expression.name == "power" else None
    return power is not None and power.name == "constant" and power.constant == 2


def squared(expression: Expression) -> Expression:
    """The squared expression, without an `abs` that does not change the square."""
    base = expression.children[0]
    return base.children[0] if base.name == "abs" else base


def _why_not(expression: Expression) -> str:
    if not expression.name:
        return "one of its inputs has its full shape"
    if expression.name == "power":
        return "its exponent is not 2"
    return f"{expression.name} is not multiplied out"
