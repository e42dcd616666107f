"""A formula multiplied out: the sum of products of smaller tensors that it is equal to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .expression import Expression

# More than these and the formula is no distance and none of its gradients.
_MOST_TERMS = 12
_MOST_FACTORS = 8


@dataclass(frozen=True, slots=True)
class Factor:
    """A tensor that lacks a dimension of the space: `expression`, or its reciprocal when `inverted`.

    centre: a tensor whose mean over the dimensions `over` is taken off (sign -1) or put on (sign 1) first. Differences
    stay what they are when both sides move by the same, and what is multiplied out then does not cancel far from the
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

    coefficient: float
    factors: tuple[Factor, ...] = ()

    @property
    def is_square(self) -> bool:
        """Whether it cannot be negative, being a product of squares."""
        return self.coefficient >= 0 and all(count % 2 == 0 for count in Counter(self.factors).values())


@dataclass(slots=True)
class Expansion:
    """Terms of one formula in `space`; `refusal` says why there are none."""

    space: frozenset[int]
    centred: bool
    refusal: str = ""
    order: dict[Factor, int] = field(default_factory=dict)

    def terms(self, expression: Expression) -> list[Term]:
        """The terms that add up to the expression; [] with a `refusal` when it is no polynomial of smaller tensors."""
        if expression.name == "constant":
            return [Term(expression.constant)]
        if expression.dims != self.space:
            return [self._term(1.0, (Factor(expression),))]
        if expression.name in ("add", "subtract") and (moved := self._difference(expression)):
            return moved
        parts = [self.terms(child) for child in expression.children]
        if self.refusal:
            return []
        if expression.name == "add":
            return self._collected(parts[0] + parts[1])
        if expression.name == "subtract":
            return self._collected(parts[0] + [Term(-term.coefficient, term.factors) for term in parts[1]])
        if expression.name == "negate":
            return [Term(-term.coefficient, term.factors) for term in parts[0]]
        if expression.name == "multiply":
            return self._product(parts[0], parts[1])
        if is_square(expression):
            return self._product(parts[0], parts[0])
        if expression.name == "divide" and (inverse := self._inverse(expression.children[1])):
            return self._product(parts[0], [inverse])
        self.refusal = _why_not(expression)
        return []

    def _difference(self, expression: Expression) -> list[Term]:
        """a - b as (a - c) - (b - c), a + b as (a + c) + (b - c), where c is the mean of b."""
        left, right = expression.children
        both = self.space not in (left.dims, right.dims)
        if not self.centred or not both or not left.dims or not right.dims:
            return []
        sign = -1.0 if expression.name == "subtract" else 1.0
        over = right.dims - left.dims
        moved = Factor(left, False, right, over, int(sign)), Factor(right, False, right, over, -1)
        return [self._term(1.0, (moved[0],)), self._term(sign, (moved[1],))]

    def _inverse(self, expression: Expression) -> Term | None:
        if expression.name == "constant":
            return Term(1.0 / expression.constant) if expression.constant else None
        return self._term(1.0, (Factor(expression, inverted=True),)) if expression.dims != self.space else None

    def _product(self, left: list[Term], right: list[Term]) -> list[Term]:
        if self.refusal:
            return []
        products = [
            self._term(one.coefficient * other.coefficient, one.factors + other.factors)
            for one in left
            for other in right
        ]
        return self._collected(products)

    def _collected(self, terms: list[Term]) -> list[Term]:
        sums: dict[tuple[Factor, ...], float] = {}
        for term in terms:
            sums[term.factors] = sums.get(term.factors, 0.0) + term.coefficient
        if len(sums) > _MOST_TERMS or any(len(factors) > _MOST_FACTORS for factors in sums):
            self.refusal = "it has too many terms when multiplied out"
            return []
        return [Term(coefficient, factors) for factors, coefficient in sums.items() if coefficient]

    def _term(self, coefficient: float, factors: tuple[Factor, ...]) -> Term:
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
    return power is not None and power.name == "constant" and power.constant == 2.0


def _why_not(expression: Expression) -> str:
    if not expression.name:
        return "a tensor of its full shape goes into it"
    if expression.name == "power":
        return "its exponent is not 2"
    return f"{expression.name} is not multiplied out"
