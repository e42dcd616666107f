"""Sums of squared deviations from a mean that is still being computed.

    s = sum_j (x[j] - m)^2,   m = mean_j x[j]

over the first n elements, with their mean, is s + n (old - new)^2 after the mean has changed: the sum of the deviations
themselves is 0 (Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances,
1979). This module recognises and rewrites such sums, for any loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, prod, sqrt

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.reducers import monoid_of

from .formula import Factor, Formula, under_moves
from .places import Place, place_below
from .running import laid_along

_MOVES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")
# A mean is the sum over the count, or times its inverse, which is rounded.
_ROUNDED = 1e-6


def is_sum(op: ir.Operation) -> bool:
    """Whether the op sums one tensor of floats from zero, in its own type."""
    return (
        op.name == "stablehlo.reduce"
        and len(op.results) == 1
        and str(element_type(op.results[0])) in ("f32", "f64")
        and not has_discardable_attributes(op)
        and monoid_of(op) == "add"
        and splat_value(op.operands[1]) == 0
    )


def handed_on(op: ir.Operation) -> int | None:
    """The operand whose numbers the result has: moved, or times or divided by a constant."""
    if has_discardable_attributes(op):
        return None
    if op.name in _MOVES:
        return 0
    if op.name == "stablehlo.divide":
        return 0 if splat_value(op.operands[1]) else None
    if op.name == "stablehlo.multiply":
        return next((1 - place for place in (0, 1) if splat_value(op.operands[place])), None)
    return None


def is_mean(op: ir.Operation, between: Sequence[ir.Operation]) -> bool:
    """Whether these ops turn the sum into a mean."""
    scale = 1.0
    for each in between:
        if each.name == "stablehlo.divide":
            scale /= float(splat_value(each.operands[1]) or 0)
        elif each.name == "stablehlo.multiply":
            place = handed_on(each)
            assert place is not None
            scale *= float(splat_value(each.operands[1 - place]) or 0)
    return isclose(scale * _count(op), 1.0, rel_tol=_ROUNDED)


def _count(op: ir.Operation) -> int:
    """The number of elements that a reduce combines into one."""
    shape = build.shape_of(op.operands[0])
    return prod(shape[dim] for dim in integers(op, "dimensions", []))


def subtracted(factor: Factor, shift: ir.Value) -> tuple[ir.Value, Place] | None:
    """For x - shift, x and the letters of `shift`, which may be broadcast and transposed; None for anything else."""
    difference = defining_op(factor.value, "stablehlo.subtract")
    if factor.role != "number" or difference is None or has_discardable_attributes(difference):
        return None
    value, place = under_moves(difference.operands[1], factor.place, (shift,))
    return (difference.operands[0], place) if value == shift else None


@dataclass(frozen=True, slots=True)
class Squares:
    """A sum whose terms have a difference as a factor.

    formula, place: of the sum, from `terms_of`. difference: the factor. shift: the letters of the subtrahend.
    """

    op: ir.Operation
    formula: Formula
    place: Place
    difference: Factor
    shift: Place

    @property
    def weight(self) -> float:
        """The sum if every square is 1."""
        away = self.formula.sizes.keys() - set(self.place)
        return self.formula.coefficient * prod(self.formula.sizes[letter] for letter in away)

    def are_about(self, mean: ir.Operation, between: Sequence[ir.Operation], cut: tuple[int, int]) -> bool:
        """Whether the terms are exactly (x - m)^2, summed over all elements that m is the mean of.

        mean: the sum that gives m, through the ops `between`. cut: the dimensions along which the operands of both sums
        are cut, which must be the same one of x.
        """
        squared = defining_op(self.difference.value, "stablehlo.subtract")
        if self.op.name != "stablehlo.reduce" or squared is None or self.formula.powers[self.difference] != 2:
            return False
        others = self.formula.powers.keys() - {self.difference}
        if not all(factor.value in self.formula.leaves for factor in others):
            return False
        letters = Formula().new_letters(build.shape_of(mean.operands[0]))
        x, theirs = under_moves(mean.operands[0], tuple(letters))
        same, ours = under_moves(squared.operands[0], self.difference.place)
        if x != same or _letters(theirs) != _letters(letters) or _letters(ours) != self.formula.sizes.keys():
            return False
        known = {None: None, **dict(zip(theirs, ours, strict=True))}
        own = Formula().new_letters(build.shape_of(self.op.operands[0]))
        if letters[cut[0]] is None or known[letters[cut[0]]] != own[cut[1]]:
            return False
        away = integers(mean, "dimensions", [])
        kept = tuple(known[letter] for dim, letter in enumerate(letters) if dim not in away)
        return _letters(kept) == _letters(self.place) and place_behind(self.shift, between) == kept


def _letters(place: Sequence[int | None]) -> set[int]:
    return {letter for letter in place if letter is not None}


def place_behind(place: Place, between: Sequence[ir.Operation]) -> Place | None:
    """The letters of the result of some ops, from those of their operand; None if they do not follow."""
    for op in reversed(between):
        if op.name in _MOVES:
            below = place_below(op, place)
            if below is None:
                return None
            place = below
    return place


def as_of_all(total: ir.Value, count: int, elements: ir.Value) -> ir.Value:
    """A sum over the first `elements`, an integer, of `count`, scaled to all of them: with the same mean.

    Divided first: equal numbers, whose sum is a multiple of theirs, then have exactly themselves as their mean.
    """
    kind = element_type(total)
    shape = build.shape_of(total)
    some = stablehlo.divide(total, build.broadcast(build.convert(elements, kind), shape))
    return stablehlo.multiply(some, build.splat(total.type, count))


def before_any(old: ir.Value, new: ir.Value, elements: ir.Value) -> ir.Value:
    """The old mean, or the new one if the old one is of no elements."""
    none = build.equal(elements, build.scalar_like(elements, 0))
    return stablehlo.select(none, new, old)


def moved(
    total: ir.Value, old: ir.Value, new: ir.Value, dims: Sequence[int | None], count: ir.Value, weight: float
) -> ir.Value:
    """A sum of (x - old)^2 as one of (x - new)^2, where old is the mean of the x.

    count: of the elements summed, 0-d. weight: what a square of 1 adds for each. dims: for each dimension of old and
    new, that of the sum; None for one of size 1.
    """
    kind = element_type(total)
    old, new = build.convert(old, kind), build.convert(new, kind)
    same = build.compare(old, new, "EQ", "FLOAT")  # both may be infinite
    apart = stablehlo.select(same, build.zeros(new.type), stablehlo.subtract(old, new))
    # Scaled first: the square alone may be infinite, or 0.
    scaled = stablehlo.multiply(apart, build.splat(apart.type, sqrt(abs(weight))))
    square = stablehlo.multiply(scaled, scaled if weight > 0 else stablehlo.negate(scaled))
    more = stablehlo.multiply(square, build.broadcast(build.convert(count, kind), build.shape_of(square)))
    return stablehlo.add(total, laid_along(more, dims, total))
