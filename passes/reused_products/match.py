"""Which sums over a product hold another product of the block. Analysis only.

The formula of a sum, with one of its dots opened, is a product of tensors by letters, summed over those that the result
lacks. A dot of the block is part of it if all its factors are among those of the sum, at letters that agree, and
nothing else has the letters that the dot has summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.reducers import monoid_of
from exla_opt.passes.algebra.dots import contracted_sizes, operand_places
from exla_opt.passes.algebra.formula import Factor, Formula, is_float, under_moves
from exla_opt.passes.algebra.places import Place

# The maximum number of dots of one sum that are opened, and of dots on one tensor that are compared with it.
_MOST_DOTS = 4
_MOST_READERS = 16
# The maximum number of assignments of a dot's factors to those of a sum; nearly always there is one.
_MOST_WAYS = 64
_NOTES, _MEANINGLESS = "mhlo.frontend_attributes", ("grad_x", "grad_y")


@dataclass(frozen=True, slots=True, eq=False)
class KnownDot:
    """A dot of the block as a product. place: the letters of its result; `summed`: those that it sums over."""

    op: ir.Operation
    formula: Formula
    place: Place
    summed: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class OpenSum:
    """A reduce that adds, as a product with one of its dots opened.

    dot: the one that is opened. operand: its operand that is not expanded further, in its place. formula: with all
    factors, including `operand`. place: the letters of the result.
    """

    op: ir.Operation
    dot: ir.Operation
    operand: Factor
    others: tuple[Factor, ...]
    formula: Formula
    place: Place

    @property
    def output(self) -> frozenset[int]:
        """The letters of the result."""
        return letters_of(self.place)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The sum is that of `known` at the letters `place`, times the remaining factors and a number."""

    sum: OpenSum
    known: KnownDot
    place: Place
    left: Mapping[Factor, int]
    coefficient: float


@dataclass(slots=True)
class KnownDots:
    """The dots of a block, by their factors."""

    readers: dict[ir.Value, list[KnownDot]] = field(default_factory=dict)

    def add(self, op: ir.Operation) -> None:
        """Add a dot_general."""
        formula = Formula()
        result = op.results[0]
        place = tuple(formula.new_letters(build.shape_of(result)))
        summed = formula.new_letters(contracted_sizes(op))
        formula.round_to(result)
        for operand, where in zip(op.operands, operand_places(op, place, summed), strict=True):
            formula.read(operand, where)
        known = KnownDot(op, formula, place, frozenset(letter for letter in summed if letter is not None))
        for value in dict.fromkeys(factor.value for factor in formula.powers):
            self.readers.setdefault(value, []).append(known)


def is_sum(op: ir.Operation) -> bool:
    """Whether the op sums one tensor of floats, from zero."""
    if op.name != "stablehlo.reduce" or len(op.operands) != 2 or has_discardable_attributes(op):
        return False
    return is_float(op.operands[0]) and monoid_of(op) == "add" and splat_value(op.operands[1]) == 0


def is_known(op: ir.Operation) -> bool:
    """Whether the op is a dot of floats, which a formula may contain."""
    if op.name != "stablehlo.dot_general" or _is_sharded(op):
        return False
    return all(is_float(value) for value in (*op.operands, *op.results))


def _is_sharded(op: ir.Operation) -> bool:
    """Whether it has an attribute of another dialect, except TensorFlow's `grad_x` and `grad_y`, which mean nothing."""
    if not has_discardable_attributes(op):
        return False
    others = [op.attributes[place] for place in range(len(op.attributes)) if "." in op.attributes[place].name]
    return any(each.name != _NOTES or _says_something(ir.DictAttr(each.attr)) for each in others)


def _says_something(notes: ir.DictAttr) -> bool:
    return any(notes[place].name not in _MEANINGLESS for place in range(len(notes)))


def open_sums(op: ir.Operation) -> Iterator[OpenSum]:
    """The sum with each of its dots opened in turn, and each operand of theirs expanded in turn."""
    closed, place = _closed(op)
    dots = [(factor, dot) for factor, power in closed.powers.items() if power == 1 and (dot := _dot_of(factor))]
    for factor, dot in dots[:_MOST_DOTS]:
        for kept in (0, 1):
            formula, place = _closed(op)
            del formula.powers[factor]
            summed = formula.new_letters(contracted_sizes(dot))
            places = operand_places(dot, factor.place, summed)
            operand = Factor(*under_moves(dot.operands[kept], places[kept]))
            others = Formula(formula.sizes)
            others.read(dot.operands[1 - kept], places[1 - kept])
            formula.join(others)
            formula.multiply(operand, 1)
            yield OpenSum(op, dot, operand, tuple(others.powers), formula, place)


def _closed(op: ir.Operation) -> tuple[Formula, Place]:
    """The sum of the op, with all dots closed, and the letters of the result."""
    formula = Formula()
    away = integers(op, "dimensions", [])
    letters = formula.new_letters(build.shape_of(op.operands[0]))
    formula.round_to(op.results[0])
    formula.read(op.operands[0], tuple(letters))
    return formula, tuple(letter for dim, letter in enumerate(letters) if dim not in away)


def _dot_of(factor: Factor) -> ir.Operation | None:
    op = defining_op(factor.value)
    return op if op is not None and factor.role == "number" and is_known(op) else None


def matches(sum_: OpenSum, dots: KnownDots) -> Iterator[Match]:
    """The dots of which the sum is a multiple, term by term."""
    for factor in sum_.others:
        for known in dots.readers.get(factor.value, [])[:_MOST_READERS]:
            if known.op == sum_.dot:
                continue
            match = _match(sum_, known)
            if match is not None:
                yield match


def _match(sum_: OpenSum, known: KnownDot) -> Match | None:
    letters = _letters(sum_.formula, known)
    if letters is None:
        return None
    place = _moved(known.place, letters)
    if place is None:
        return None
    gone = frozenset(letters[letter] for letter in known.summed)
    left = dict(sum_.formula.powers)
    for factor, power in known.formula.powers.items():
        where = _moved(factor.place, letters)
        here = Factor(factor.value, where, factor.role) if where is not None else None
        if here is None or not _takes_away(left, here, power):
            return None
    left = {factor: power for factor, power in left.items() if power}
    if left.get(sum_.operand, 0) < 1:
        return None  # the dot, or a divisor, has removed the other factor of its rows
    everywhere = letters_of(place).union(*(letters_of(factor.place) for factor in left))
    summed = frozenset(sum_.formula.sizes) - sum_.output
    if any(factor.role != "number" for factor in left) or gone & everywhere or not gone <= summed:
        return None
    if not frozenset(sum_.formula.sizes) - gone <= everywhere:
        return None  # something is only broadcast
    known_number = known.formula.coefficient  # 0 if small numbers underflow
    coefficient = sum_.formula.coefficient / known_number if known_number else inf
    return Match(sum_, known, place, left, coefficient)


def _takes_away(left: dict[Factor, int], factor: Factor, power: int) -> bool:
    """Divide by a power of a factor; False if that leaves another kind of power than there was."""
    total = left.get(factor, 0)
    rest = total - power
    left[factor] = rest
    return total != 0 and abs(rest) <= abs(total) and rest * total >= 0


def _letters(formula: Formula, known: KnownDot) -> dict[int, int] | None:
    """A mapping from the dot's letters to the sum's by which the sum contains all factors of the dot."""
    by_value: dict[tuple[ir.Value, str], list[Place]] = {}
    for factor in formula.powers:
        by_value.setdefault((factor.value, factor.role), []).append(factor.place)
    wanted = [(factor.place, by_value.get((factor.value, factor.role), [])) for factor in known.formula.powers]
    wanted.sort(key=lambda pair: len(pair[1]))
    if prod(len(places) for _, places in wanted) > _MOST_WAYS:
        return None
    letters: dict[int, int] = {}
    return letters if _assign(wanted, 0, letters) else None


def _assign(wanted: list[tuple[Place, list[Place]]], number: int, letters: dict[int, int]) -> bool:
    if number == len(wanted):
        return True
    place, candidates = wanted[number]
    for candidate in candidates:
        new = _agreed(place, candidate, letters)
        if new is None:
            continue
        letters.update(new)
        if _assign(wanted, number + 1, letters):
            return True
        for letter in new:
            del letters[letter]
    return False


def _agreed(place: Place, candidate: Place, letters: Mapping[int, int]) -> dict[int, int] | None:
    """The letters that are not yet assigned, if all others agree."""
    new: dict[int, int] = {}
    taken = set(letters.values())
    for letter, other in zip(place, candidate, strict=True):
        if letter is None or other is None:
            if letter is not other:
                return None
            continue
        known = letters.get(letter, new.get(letter))
        if known is None and other not in taken:
            new[letter] = other
            taken.add(other)
        elif known != other:
            return None
    return new


def _moved(place: Place, letters: Mapping[int, int]) -> Place | None:
    """The place in the letters of the sum; None where one has no counterpart."""
    if any(letter is not None and letter not in letters for letter in place):
        return None
    return tuple(None if letter is None else letters[letter] for letter in place)


def letters_of(place: Place) -> frozenset[int]:
    """The letters of a tensor's dimensions."""
    return frozenset(letter for letter in place if letter is not None)
