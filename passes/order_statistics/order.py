"""In which order a sort puts its elements, if that is an order of one of its operands."""

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
# Floats whose bits, read as integers, are in their order but for the signs.
_FLOATS = ("f64", "f32", "f16", "bf16")
_INTEGER_WIDTHS = (1, 8, 16, 32, 64)
# A comparator makes as many choices about an element as there are kinds of them: zero, not a number.
_MOST_CHOICES = 2


@dataclass(frozen=True, slots=True)
class Order:
    """What a sort compares.

    operand: the number of the operand that it compares. descending: whether the largest come first. nan: the constant
    that stands for every not-a-number, where the sort makes no difference between them.

    A sort may take zeros of both signs for equal. Here the negative ones are always below the others, which is an
    order of the same kind: it only says which of two equal elements comes first.
    """

    operand: int
    descending: bool
    nan: ir.Attribute | None


def order_of(sort: ir.Operation) -> Order | None:
    """The order of a sort; None where it is no total order of one operand, or not known to be one.

    Without a total order, as of floats that are plainly compared, a NaN is neither before nor behind another number.
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
    """One side of a comparison: an argument of the comparator, by its number, and which elements count as one."""

    argument: int
    zeros: bool
    nan: ir.Attribute | None


def _side(value: ir.Value, block: ir.Block) -> _Side | None:
    """An element, or what a comparator makes of it that takes all its zeros, or all its NaNs, for one."""
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
