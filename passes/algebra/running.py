"""Sums of exponentials with a subtrahend that is still being computed.

    s = sum_j exp(x[j] - m) y[j],   m = max_j x[j]

over the first tiles, with their maximum, is s * exp(old - new) after the maximum has changed (Milakov and Gimelshein,
arXiv:1805.02867). This module recognises and rewrites such sums, for any loop.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.reducers import monoid_of

from .dots import contracted_sizes, operand_places
from .formula import Factor, Formula, is_float, under_moves
from .places import Place, place_below

_MOVES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


def is_maximum(op: ir.Operation) -> bool:
    """Whether the op is the maximum of one tensor of floats."""
    return (
        op.name == "stablehlo.reduce"
        and len(op.results) == 1
        and is_float(op.results[0])
        and not has_discardable_attributes(op)
        and monoid_of(op) == "maximum"
    )


def handed_on(op: ir.Operation) -> int | None:
    """The operand whose numbers the result has: moved, at least minus infinity, or replaced where not finite."""
    if has_discardable_attributes(op):
        return None
    if op.name in _MOVES:
        return 0
    if op.name == "stablehlo.maximum":
        return next((1 - place for place in (0, 1) if splat_value(op.operands[place]) == -inf), None)
    return 1 if is_guard(op) else None


def is_guard(op: ir.Operation) -> bool:
    """Whether the op is zero where its second operand is not finite, and that operand elsewhere."""
    if op.name != "stablehlo.select" or splat_value(op.operands[2]) != 0:
        return False
    asked = defining_op(op.operands[0], "stablehlo.is_finite")
    return asked is not None and asked.operands[0] == op.operands[1]


def terms_of(op: ir.Operation, leaves: Collection[ir.Value]) -> tuple[Formula, Place] | None:
    """The summands of a dot or a summing reduce, as a product, and the letters of its result; None for other ops.

    leaves: values that are taken as factors. Products of f16 may overflow, and give None.
    """
    if has_discardable_attributes(op) or len(op.results) != 1 or not all(map(is_float, (*op.operands, *op.results))):
        return None
    formula = Formula(leaves=leaves)
    if op.name == "stablehlo.dot_general":
        place = tuple(formula.new_letters(build.shape_of(op.results[0])))
        summed = formula.new_letters(contracted_sizes(op))
        for operand, where in zip(op.operands, operand_places(op, place, summed), strict=True):
            formula.read(operand, where)
        return None if formula.overflows else (formula, place)
    if op.name != "stablehlo.reduce" or monoid_of(op) != "add" or splat_value(op.operands[1]) != 0:
        return None
    away = integers(op, "dimensions", [])
    letters = formula.new_letters(build.shape_of(op.operands[0]))
    formula.read(op.operands[0], tuple(letters))
    place = tuple(letter for dim, letter in enumerate(letters) if dim not in away)
    return None if formula.overflows else (formula, place)


def subtracted(factor: Factor, shift: ir.Value) -> tuple[ir.Value, Place] | None:
    """For exp(x - shift), x and the letters of `shift`, which may be broadcast and transposed; None for others."""
    exponential = defining_op(factor.value, "stablehlo.exponential")
    difference = exponential and defining_op(exponential.operands[0], "stablehlo.subtract")
    if factor.role != "number" or difference is None:
        return None
    value, place = difference.operands[1], factor.place
    while value != shift:
        op = defining_op(value)
        below = None if op is None else place_below(op, place)
        if op is None or below is None:
            return None
        value, place = op.operands[0], below
    return difference.operands[0], place


def is_below(terms: Formula, factor: Factor, x: ir.Value, shift: Place, maximum: ir.Operation) -> bool:
    """Whether each x of a factor exp(x - shift) is among the numbers that the shift is the maximum of.

    For other numbers, the maximum so far may be smaller by any amount, and the exponential infinite. If the maximum
    excludes masked numbers, the terms must be masked alike. shift: the letters of the maximum's result.
    """
    letters = tuple(Formula().new_letters(build.shape_of(maximum.operands[0])))
    ours, theirs = _sources(x, factor.place), _sources(maximum.operands[0], letters)
    mask: Factor | None = None
    if ours.keys().isdisjoint(theirs):
        value, place = list(theirs.items())[-1]
        chosen = defining_op(value, "stablehlo.select")
        kept = [at for at in (1, 2) if chosen is not None and splat_value(chosen.operands[3 - at]) is not None]
        if chosen is None or not kept:
            return False
        asked, where = chosen.operands[0], place if build.shape_of(chosen.operands[0]) else ()
        mask = Factor(*under_moves(asked, where), "mask" if kept[0] == 1 else "masked")
        theirs = _sources(chosen.operands[kept[0]], place)
    same = next((value for value in ours if value in theirs), None)
    if same is None:
        return False
    known = dict(zip(theirs[same], ours[same], strict=True))

    def as_ours(place: Place) -> Place:
        return tuple(None if letter is None else known.get(letter, -1) for letter in place)

    away = integers(maximum, "dimensions", [])
    if as_ours(tuple(letter for dim, letter in enumerate(letters) if dim not in away)) != shift:
        return False
    return mask is None or replace(mask, place=as_ours(mask.place)) in terms.powers


def _sources(value: ir.Value, place: Place) -> dict[ir.Value, Place]:
    """A tensor and its sources behind broadcasts, transposes and conversions, with their letters."""
    found = {value: place}
    while (op := defining_op(value)) is not None and not has_discardable_attributes(op):
        converts = op.name == "stablehlo.convert" and is_float(op.operands[0])
        below = place if converts else place_below(op, place)
        if below is None:
            break
        value, place = op.operands[0], below
        found[value] = place
    return found


def finite(shift: ir.Value) -> ir.Value:
    """The number itself, and 0 for minus infinity, for which exp(x - shift) would be NaN."""
    lowest = build.splat(shift.type, -inf)
    return stablehlo.select(build.compare(shift, lowest, "EQ", "FLOAT"), build.zeros(shift.type), shift)


def rescaled(total: ir.Value, old: ir.Value, new: ir.Value, dims: Sequence[int | None]) -> ir.Value:
    """A sum of exp(x - old) as one of exp(x - new), where new is not smaller, and finite.

    dims: for each dimension of old and new, that of the sum; None for one of size 1. Before the first number, old is
    minus infinity, or a guard's zero, and the sum is zero: a guard's zero may exceed new by any amount. After an
    infinity, new may be a guard's zero, and smaller than old.
    """
    kind = element_type(total)
    old, new = build.convert(old, kind), build.convert(new, kind)
    raised, zero = stablehlo.subtract(old, new), build.zeros(new.type)
    nothing = build.compare(old, zero, "EQ", "FLOAT")
    raised = stablehlo.select(nothing, stablehlo.minimum(raised, zero), raised)
    return stablehlo.multiply(total, laid_along(stablehlo.exponential(raised), dims, total))


def as_it_was(total: ir.Value, shift: ir.Value, dims: Sequence[int | None]) -> ir.Value:
    """The sum, or NaN where the subtrahend is infinite: exp(x - shift) was NaN for the largest x."""
    kind = element_type(total)
    wide = build.convert(shift, kind)
    return stablehlo.multiply(total, laid_along(stablehlo.exponential(stablehlo.subtract(wide, wide)), dims, total))


def times_power(total: ir.Value, value: ir.Value, power: int, dims: Sequence[int | None]) -> ir.Value:
    """A sum times a power of a factor that all of its terms share. dims: as in `rescaled`."""
    factor = laid_along(build.convert(value, element_type(total)), dims, total)
    for _ in range(abs(power)):
        total = stablehlo.multiply(total, factor) if power > 0 else stablehlo.divide(total, factor)
    return total


def ones_like(value: ir.Value) -> ir.Value:
    """A constant of ones with the type of a value."""
    return build.splat(value.type, 1)


def laid_along(value: ir.Value, dims: Sequence[int | None], like: ir.Value) -> ir.Value:
    """A small tensor broadcast to the shape of another. dims: as in `rescaled`."""
    kept = [dim for dim in dims if dim is not None]
    shape = [size for size, dim in zip(build.shape_of(value), dims, strict=True) if dim is not None]
    if shape != build.shape_of(value):
        value = stablehlo.reshape(build.with_shape(build.tensor_of(value), shape), value)
    if value.type == like.type and kept == sorted(kept):
        return value
    return stablehlo.broadcast_in_dim(like.type, value, ir.DenseI64ArrayAttr.get(kept))
