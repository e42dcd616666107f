"""Formulas of known sign, or of the sign of small tensors: expanding them must not change it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from exla_opt.ir.values import Number

from .expression import Expression
from .terms import Expansion, Factor, Term, is_square, squared

# The formulas that people write have no longer products.
_MOST = 64
# Their results are not negative.
_POSITIVE = frozenset({"abs", "exponential", "logistic", "sqrt"})


@dataclass(frozen=True, slots=True)
class Square:
    """coefficient * the product of the factors * the squares of the roots, which are as large as the formula."""

    coefficient: Number
    factors: tuple[Factor, ...]
    roots: tuple[Expression, ...]

    @property
    def sign(self) -> int:
        """The sign of the coefficient."""
        return -1 if self.coefficient < 0 else 1

    @property
    def weights(self) -> tuple[Factor, ...]:
        """The factors that may make the product negative: all others occur an even number of times, or are roots."""
        counts = Counter(factor.expression for factor in self.factors)
        odd = [factor for factor in dict.fromkeys(self.factors) if counts[factor.expression] % 2]
        return tuple(factor for factor in odd if not _is_positive(factor.expression))

    def terms(self, expansion: Expansion) -> tuple[list[Term], list[Term]]:
        """The squares in its expansion, and the products of two that may have either sign."""
        once = [Term(1)]
        for root in self.roots:
            once = expansion.product(once, expansion.terms(root))
        scale = [Term(self.coefficient, self.factors)]
        pairs = [(one, other) for place, one in enumerate(once) for other in once[place + 1 :]]
        squares = [expansion.product([term], [term]) for term in once]
        mixed = [expansion.product([one], [Term(2 * other.coefficient, other.factors)]) for one, other in pairs]
        return _scaled(expansion, scale, squares), _scaled(expansion, scale, mixed)


def _scaled(expansion: Expansion, scale: list[Term], parts: list[list[Term]]) -> list[Term]:
    return expansion.product(scale, [term for terms in parts for term in terms])


def _is_positive(expression: Expression) -> bool:
    return is_square(expression) or expression.name in _POSITIVE


def squares_of(expression: Expression, space: frozenset[int]) -> list[Square]:
    """The squares that the formula sums; [] if one of its summands is no square."""
    found: list[Square] = []
    stack: list[tuple[Expression, Number]] = [(expression, 1)]
    while stack:
        each, sign = stack.pop()
        if each.dims == space and each.name in ("add", "subtract"):
            left, right = each.children
            stack += [(right, -sign if each.name == "subtract" else sign), (left, sign)]
            continue
        square = _square_of(each, space, sign)
        if square is None or len(found) == _MOST:
            return []
        found.append(square)
    return found


def _square_of(expression: Expression, space: frozenset[int], coefficient: Number) -> Square | None:
    """The formula, times a number, as a square with factors; None if it is none."""
    factors: list[Factor] = []
    full: Counter[Expression] = Counter()
    stack = [(expression, False)]
    while stack:
        each, inverted = stack.pop()
        if len(factors) + full.total() > _MOST:
            return None
        if each.name == "constant":
            if inverted and not each.constant:
                return None
            coefficient = coefficient / each.constant if inverted else coefficient * each.constant
        elif each.dims != space:
            factors.append(Factor(each, inverted))
        elif inverted:
            return None
        elif is_square(each):
            full[squared(each)] += 2
        elif each.name == "negate":
            coefficient = -coefficient
            stack.append((each.children[0], False))
        elif each.name in ("multiply", "divide"):
            stack += zip(each.children, (False, each.name == "divide"), strict=True)
        else:
            full[each] += 1
    if not full or any(count % 2 for count in full.values()):
        return None
    roots = tuple(each for each, count in full.items() for _ in range(count // 2))
    return Square(coefficient, tuple(factors), roots)
