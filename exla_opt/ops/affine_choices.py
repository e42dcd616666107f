"""Integers that are chosen at each position, if a predicate or their source bounds them (`affine`).

x < 0 ? x + n : x                            negative indices, and the sign of JAX's x % n
sign(x) != sign(n) and x rem n != 0          JAX's x // n: always false if neither is negative
reduce(x, places) by (a > b ? ...)           argmax: one of the places; likewise argsort and top_k
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator

from .affine import Affine, between, constant, either
from .affine_elementwise import ELEMENTWISE
from .comparisons import direction_of

# Reads a value in the shape of the current op.
Read = Callable[[ir.Value], Affine | None]
# A choice in the body of a reduce has fewer nested choices than this.
_MOST_CHOICES = 16


def of_select(op: ir.Operation, read: Read) -> Affine | None:
    """The integers of a select."""
    predicate, yes, no = (read(operand) for operand in op.operands)
    if predicate is not None and predicate.number is not None:
        return yes if predicate.number else no
    if yes is None or no is None:
        return None
    return _without_negative(op, read) or either(yes, no)


def of_and(op: ir.Operation, read: Read) -> Affine | None:
    """The booleans of an `and`."""
    one, other = op.operands
    for signs, rest in ((one, other), (other, one)):
        value = _differs_in_sign(signs, read)
        known = None if value is None else read(value)
        if value is not None and known is not None and _has_rest(rest, value, read):  # known, as its sign is
            return constant(0, known.shape)
    return ELEMENTWISE[op.name](op, [read(one), read(other)])


def of_reduce(op: ir.Operation, number: int, read_all: Read) -> Affine | None:
    """The integers of one result of a reduce whose body selects an element. read_all: reads unsplit operands."""
    count = len(op.results)
    body = op.regions[0].blocks[0]
    if not _is_chosen(terminator(body).operands[number], {body.arguments[number], body.arguments[number + count]}):
        return None
    known = [read_all(op.operands[place]) for place in (number, number + count)]
    shape = build.shape_of(op.results[number])
    bounds = [between(each.lowest, each.highest, shape) for each in known if each is not None]
    return reduce(either, bounds) if len(bounds) == len(known) else None


def of_sort(op: ir.Operation, number: int, read_all: Read) -> Affine | None:
    """The integers of one result of a sort, in any order: with `argsort`, positions of the sorted dimension."""
    found = read_all(op.operands[number])
    return None if found is None else between(found.lowest, found.highest, build.shape_of(op.results[number]))


def of_top_k(op: ir.Operation, number: int, _: Read) -> Affine | None:
    """The positions of the largest elements; nothing is known of the elements."""
    last = build.shape_of(op.operands[0])[-1] - 1
    return between(0, last, build.shape_of(op.results[number])) if number else None


def _is_chosen(value: ir.Value, among: set[ir.Value]) -> bool:
    stack = [value]
    for _ in range(_MOST_CHOICES):
        if not stack:
            return True
        one = stack.pop()
        if one in among:
            continue
        op = defining_op(one)
        if op is None or op.name not in ("stablehlo.select", "stablehlo.minimum", "stablehlo.maximum"):
            return False
        stack += list(op.operands)[-2:]
    return False


def _without_negative(op: ir.Operation, read: Read) -> Affine | None:
    """x + n where x is negative, otherwise x."""
    predicate, moved, kept = op.operands
    step = defining_op(moved, "stablehlo.add")
    if step is None or kept not in list(step.operands) or not _is_negative(predicate, kept, read):
        return None
    left, right = step.operands
    added, value = read(right if left == kept else left), read(kept)
    if added is None or added.number is None or value is None:
        return None
    bounds = []
    if value.lowest < 0:
        bounds.append((value.lowest + added.number, min(value.highest, -1) + added.number))
    if value.highest >= 0:
        bounds.append((max(value.lowest, 0), value.highest))
    return between(min(low for low, _ in bounds), max(high for _, high in bounds), value.shape)


def _is_negative(predicate: ir.Value, value: ir.Value, read: Read) -> bool:
    """Whether the predicate is true exactly where the value is less than zero."""
    op = defining_op(predicate)
    if op is None or len(op.operands) != 2:
        return False
    left, right = op.operands
    pairs = ((left, right), (right, left))
    if op.name == "stablehlo.and":  # a negative number is not zero
        return any(_is_negative(one, value, read) and _is_not(other, value, 0, read) for one, other in pairs)
    if op.name != "stablehlo.compare":
        return False
    if direction_of(op) == "NE" and str(element_type(left)) == "i1":
        return any(_is_everywhere(other, 0, read) and _is_negative(one, value, read) for one, other in pairs)
    is_integer = isinstance(element_type(value), ir.IntegerType)
    return is_integer and direction_of(op) == "LT" and left == value and _is_everywhere(right, 0, read)


def _is_not(predicate: ir.Value, value: ir.Value, number: int, read: Read) -> bool:
    op = defining_op(predicate, "stablehlo.compare")
    if op is None or direction_of(op) != "NE" or op.operands[0] != value:
        return False
    return _is_everywhere(op.operands[1], number, read)


def _is_everywhere(value: ir.Value, number: int, read: Read) -> bool:
    found = read(value)
    return found is not None and found.number == number


def _differs_in_sign(predicate: ir.Value, read: Read) -> ir.Value | None:
    """The non-negative value whose sign the predicate compares with 1."""
    op = defining_op(predicate, "stablehlo.compare")
    sign = None if op is None else defining_op(op.operands[0], "stablehlo.sign")
    if op is None or sign is None or not _is_not(predicate, op.operands[0], 1, read):
        return None
    found = read(sign.operands[0])
    return sign.operands[0] if found is not None and found.lowest >= 0 else None


def _has_rest(predicate: ir.Value, value: ir.Value, read: Read) -> bool:
    """Whether the predicate tests for a non-zero remainder of the value; zero has none."""
    op = defining_op(predicate, "stablehlo.compare")
    rest = None if op is None else defining_op(op.operands[0], "stablehlo.remainder")
    if op is None or rest is None or rest.operands[0] != value:
        return False
    divisor = read(rest.operands[1])
    return divisor is not None and divisor.lowest > 0 and _is_not(predicate, op.operands[0], 0, read)
