"""The order of a sort, if that is an order of one of its operands."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import operations_of, terminator
from exla_opt.ops.comparisons import direction_of
from exla_opt.ops.reducers import body_of

_COMPARE, _SELECT = "stablehlo.compare", "stablehlo.select"
# Floats whose bits, read as integers, are in their order except for the signs.
_FLOATS = ("f64", "f32", "f16", "bf16")
_INTEGER_WIDTHS = (1, 8, 16, 32, 64)
# A comparator selects by at most as many special kinds of elements as there are: zero, NaN.
_MOST_CHOICES = 2


@dataclass(frozen=True, slots=True)
class Order:
    """The comparison of a sort.

    operand: the number of the operand that it compares. descending: whether the largest come first. nan: the constant
    that stands for every NaN, if the sort treats them as equal.

    A sort may treat zeros of both signs as equal. Here the negative ones are always below the others, which is an order
    of the same kind: it only decides which of two equal elements comes first.
    """

    operand: int
    descending: bool
    nan: ir.Attribute | None


def order_of(sort: ir.Operation) -> Order | None:
    """The order of a sort; None if it is no total order of one operand, or not known to be one.

    Without a total order, as for a plain comparison of floats, a NaN is neither before nor after another number.
    """
    block = body_of(sort)
    compare = defining_op(terminator(block).operands[0], _COMPARE)
    if compare is None or any(op.name not in (_COMPARE, _SELECT, "stablehlo.constant") for op in _inner(block)):
        return None
    sides = [_side(value, block) for value in compare.operands]
    if sides[0] is None or sides[1] is None or (sides[0].zeros, sides[0].nan) != (sides[1].zeros, sides[1].nan):
        return None
    first, second = sides[0].argument, sides[1].argument
    direction = direction_of(compare)
    if direction not in ("LT", "GT") or first // 2 != second // 2 or first == second:
        return None
    if not _is_total(compare, element_type(block.arguments[first])):
        return None
    return Order(first // 2, (direction == "GT") != (first > second), sides[0].nan)


def _inner(block: ir.Block) -> list[ir.Operation]:
    return operations_of(block)[:-1]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison: an argument of the comparator, by its number, and which elements count as equal."""

    argument: int
    zeros: bool
    nan: ir.Attribute | None


def _side(value: ir.Value, block: ir.Block) -> _Side | None:
    """An element, possibly with all zeros, or all NaNs, replaced by one."""
    choices: list[ir.Operation] = []
    while (choice := defining_op(value, _SELECT)) is not None and len(choices) < _MOST_CHOICES:
        choices.append(choice)
        value = choice.operands[2]
    if value.owner != block:
        return None
    zeros, nan = False, None
    for choice in choices:
        asked = defining_op(choice.operands[0], _COMPARE)
        chosen = splat_value(choice.operands[1])
        if asked is None or chosen is None or value not in (operands := list(asked.operands)):
            return None
        direction = direction_of(asked)
        if direction == "NE" and operands == [value, value] and _compares(asked) == "FLOAT" and isnan(chosen):
            made = defining_op(choice.operands[1], "stablehlo.constant")
            if made is None or nan is not None:
                return None
            nan = made.attributes["value"]
            continue
        other = splat_value(operands[1 - operands.index(value)])
        if direction != "EQ" or _compares(asked) != "FLOAT" or other != 0 or chosen != 0:
            return None
        zeros = True
    return _Side(ir.BlockArgument(value).arg_number, zeros, nan)


def _compares(op: ir.Operation) -> str:
    if "compare_type" not in op.attributes:
        return "FLOAT" if float_bits(element_type(op.operands[0])) else "NOTYPE"
    return str(stablehlo.ComparisonTypeAttr(op.attributes["compare_type"]).value)


def _is_total(compare: ir.Operation, kind: ir.Type) -> bool:
    how = _compares(compare)
    if isinstance(kind, ir.IntegerType):
        is_unsigned = kind.is_unsigned or kind.width == 1
        return kind.width in _INTEGER_WIDTHS and how in ("NOTYPE", "UNSIGNED" if is_unsigned else "SIGNED")
    return str(kind) in _FLOATS and how == "TOTALORDER"
