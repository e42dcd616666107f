"""How one value is computed from others, with labelled dimensions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import Number, defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.comparisons import EQUALITY, direction_of
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.ops.reducers import monoid_of

from .dots import contracted_sizes, operand_places
from .places import Place, place_below

# A value, and the labels of its dimensions.
Placed = tuple[ir.Value, Place]

_POINTWISE = STABLEHLO_POINTWISE | {"chlo.square"}
_COMMUTATIVE = frozenset("add and maximum minimum multiply or xor".split())

# How operands, and their signs, combine.
Rule = Literal[
    "moved", "negated", "added", "subtracted", "multiplied", "summed", "odd", "even", "divide", "power", "plain"
]
_ARITHMETIC: dict[str, Rule] = {
    "add": "added",
    "multiply": "multiplied",
    "negate": "negated",
    "subtract": "subtracted",
}


@dataclass(frozen=True, slots=True)
class Node:
    """The definition of a value of element type `kind`.

    name: of the op. rule: "moved" if it moves its only operand, "plain" if signs stay with operands, "summed" for sums
    of products, which constant factors may be moved out of. details: further properties of the value. commutes: whether
    the operands are unordered. constant: the value of a constant with one value everywhere.
    """

    name: str
    kind: ir.Type
    operands: tuple[Placed, ...] = ()
    rule: Rule = "plain"
    details: Hashable = ()
    commutes: bool = False
    constant: Number | None = None


def node_of(value: ir.Value, place: Place, labelled: bool = True) -> Node:
    """The definition of the value with these labels; "whole" has no operands, like an argument.

    labelled: whether dimensions have labels at all, including those that are summed.
    """
    kind = element_type(value)
    whole = Node("whole", kind, details=(value, place))
    op = defining_op(value)
    if op is None or len(op.results) != 1 or has_discardable_attributes(op):
        return whole
    if (number := splat_value(value)) is not None:
        return Node("constant", kind, details=str(number), constant=number)  # 0.0 is not -0.0
    if (below := place_below(op, place)) is not None:
        return Node("moved", kind, ((op.operands[0], below),), "moved")
    match op.name:
        case "stablehlo.iota":
            return Node("iota", kind, details=place[integer(op, "iota_dimension")])
        case "stablehlo.dot_general":
            return _dot(op, place, labelled)
        case "stablehlo.reduce" if len(op.operands) == 2:
            return _reduce(op, place, labelled) or whole
        case name if name in _POINTWISE:
            return _pointwise(op, place) or whole
    return whole


def _pointwise(op: ir.Operation, place: Place) -> Node | None:
    kind = element_type(op.results[0])
    shape = build.shape_of(op.results[0])
    if any(build.shape_of(operand) not in (shape, []) for operand in op.operands):
        return None
    operands = tuple((operand, place if build.shape_of(operand) else ()) for operand in op.operands)
    name = op.name.rpartition(".")[2]
    floats = all(float_bits(element_type(value)) for value in (*op.operands, op.results[0]))
    if name in _ARITHMETIC and (floats or _wraps_around(kind)):
        return Node(name, kind, operands, _ARITHMETIC[name])
    rule = _rule(name, floats)
    symmetric = name in _COMMUTATIVE or (name == "compare" and direction_of(op) in EQUALITY)
    return Node(name, kind, operands, rule, _attributes(op), symmetric)


def _rule(name: str, floats: bool) -> Rule:
    match name:
        case "abs" | "cosine" | "square":
            return "even"
        case "cbrt" | "convert" | "sign" | "sine" | "tan" | "tanh" if floats:
            return "odd"
        case "divide" | "power" if floats:
            return name
    return "plain"


def _wraps_around(kind: ir.Type) -> bool:
    """Whether the numbers are integers; sums and products of booleans are `or` and `and`."""
    return isinstance(kind, ir.IntegerType) and kind.width > 1


def _attributes(op: ir.Operation, without: str = "") -> Hashable:
    named = [op.attributes[index] for index in range(len(op.attributes))]
    return tuple((each.name, each.attr) for each in named if each.name != without)


def _reduce(op: ir.Operation, place: Place, labelled: bool) -> Node | None:
    monoid = monoid_of(op)
    if monoid is None:
        return None
    operand, init = op.operands
    shape, away = build.shape_of(operand), integers(op, "dimensions", [])
    labels = _labels(place, [shape[dim] for dim in sorted(away)], labelled)
    kept, summed = iter(place), iter(labels)
    where = tuple(next(summed if dim in away else kept) for dim in range(len(shape)))
    kind = element_type(operand)
    is_sum = monoid == "add" and splat_value(init) == 0 and (float_bits(kind) > 0 or _wraps_around(kind))
    details = (monoid, tuple((label, shape[dim]) for label, dim in zip(labels, sorted(away), strict=True)))
    return Node("reduce", kind, ((operand, where), (init, ())), "odd" if is_sum else "plain", details)


def _dot(op: ir.Operation, place: Place, labelled: bool) -> Node:
    """Its operands commute: their roundings differ by no more than another order of the sum."""
    sizes = contracted_sizes(op)
    labels = _labels(place, sizes, labelled)
    operands = list(zip(op.operands, operand_places(op, place, labels), strict=True))
    kind = element_type(op.results[0])
    floats = all(float_bits(element_type(value)) for value in (*op.operands, op.results[0]))
    same = {element_type(value) for value in op.operands} == {kind}
    if not sizes and same and (floats or _wraps_around(kind)):
        return Node("multiply", kind, tuple(operands), "multiplied")
    details = (_attributes(op, "dot_dimension_numbers"), tuple(zip(labels, sizes, strict=True)))
    rule: Rule = "odd" if floats or (same and _wraps_around(kind)) else "plain"
    if rule == "odd" and same and "algorithm" not in op.attributes:
        rule = "summed"
    return Node("dot_general", kind, tuple(operands), rule, details, "algorithm" not in op.attributes)


def _labels(place: Place, sizes: Sequence[int], labelled: bool) -> list[int | None]:
    """Labels for summed dimensions, which nothing outside of the sum has."""
    if not labelled:
        return [None] * len(sizes)
    lowest = min((label for label in place if label is not None), default=0)
    return [None if size == 1 else min(lowest, 0) - 1 - number for number, size in enumerate(sizes)]
