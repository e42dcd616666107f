"""Numbers values by their definitions: equal numbers are equal values, up to transposition.

Analysis only. Every dimension of a value has a label, its place; a sum has one of its own, below zero, for each summed
dimension. The number of w at the place (0, 1) is that of w[i,j], and at (1, 0) that of w[j,i]: w is symmetric if they
are equal, and antisymmetric if their signs differ. Factors, and terms, are unordered: values of the same number are
equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.types import float_bits
from exla_opt.ir.values import Number

from .nodes import Node, Placed, node_of
from .places import Place

# A number, and the sign of the value: 1 or -1.
Signed = tuple[int, int]

# Narrower floats round too much, or overflow, if the order of their factors changes.
_SINGLE = 32
# This many factors, or terms, are sorted. A longer product counts as one of two.
_MOST_PARTS = 64


@dataclass(slots=True)
class Numbering:
    """Numbers values, once per place.

    labelled: if not, dimensions and signs are ignored: values with the same number with labels also share it without,
    and a value has only one place. constants: the numbers of values that are one constant everywhere. parts: the terms
    of a sum, or the factors of a product.
    """

    labelled: bool = True
    known: dict[Placed, Signed] = field(default_factory=dict)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    constants: dict[int, Number] = field(default_factory=dict)
    parts: dict[tuple[str, int], tuple[Signed, ...]] = field(default_factory=dict)

    def number(self, value: ir.Value, place: Place) -> Signed:
        """The number of a value whose dimensions have these labels; those of size 1 have None."""
        stack = [((value, place), node_of(value, place, self.labelled))]
        while stack:
            placed, node = stack[-1]
            missing = [operand for operand in node.operands if operand not in self.known]
            if missing:
                stack += [(operand, node_of(*operand, self.labelled)) for operand in missing]
                continue
            stack.pop()
            number, sign = self._combined(node, [self.known[operand] for operand in node.operands])
            self.known[placed] = (number, sign if self.labelled else 1)
        return self.known[value, place]

    def of_result(self, op: ir.Operation) -> Signed:
        """The number of an op's only result, with its dimensions labelled in order."""
        shape = build.shape_of(op.results[0])
        has_label = [self.labelled and size != 1 for size in shape]
        return self.number(op.results[0], tuple(dim if has_label[dim] else None for dim in range(len(shape))))

    def _combined(self, node: Node, operands: list[Signed]) -> Signed:
        match node.rule:
            case "moved":
                return operands[0]
            case "negated":
                return _negative(operands[0])
            case "added":
                return self._added(node, operands)
            case "subtracted":
                return self._added(node, [operands[0], _negative(operands[1]) if self.labelled else operands[1]])
            case "multiplied":
                return self._multiplied(node, operands)
            case "summed":
                return self._summed(node, _without_signs(operands)), _sign(operands)
            case "odd":
                return self._numbered(node, _without_signs(operands)), _sign(operands)
            case "even":
                return self._numbered(node, _without_signs(operands)), 1
            case "divide":  # a difference of 0 in either order gives the same infinity
                return self._numbered(node, [*_without_signs(operands[:1]), operands[1]]), operands[0][1]
            case "power" if self._is_even(operands[1]):
                return self._numbered(node, [*_without_signs(operands[:1]), operands[1]]), 1
            case _:
                number = self._numbered(node, operands)
                if node.constant is not None:
                    self.constants[number] = node.constant
                return number, 1

    def _numbered(self, node: Node, operands: Sequence[Signed]) -> int:
        return self._number_of(node.name, node, sorted(operands) if node.commutes else operands)

    def _number_of(self, name: str, node: Node, operands: Sequence[Signed]) -> int:
        return self.numbers.setdefault((name, node.kind, node.details, tuple(operands)), len(self.numbers))

    def _is_even(self, exponent: Signed) -> bool:
        constant = self.constants.get(exponent[0])
        return constant is not None and constant % 2 == 0

    def _added(self, node: Node, operands: Sequence[Signed]) -> Signed:
        terms = sorted(part for part in self._parts("add", node, operands) if self.constants.get(part[0]) != 0)
        if len(terms) == 1:
            return terms[0]
        # A sum and its negative share one number.
        negative = sorted(map(_negative, terms))
        chosen = max(terms, negative)
        number = self._number_of("add", node, chosen)
        self.parts["add", number] = tuple(chosen)
        return number, 1 if chosen == terms else -1

    def _multiplied(self, node: Node, operands: Sequence[Signed]) -> Signed:
        parts = self._parts("multiply", node, _without_signs(operands))
        return self._product(node.kind, parts), _sign(operands)

    def _summed(self, node: Node, operands: Sequence[Signed]) -> int:
        """A sum of products, with constant factors moved out: dot(2 x, y) is 2 dot(x, y)."""
        if 0 < float_bits(node.kind) < _SINGLE:
            return self._numbered(node, operands)
        outside: list[Signed] = []
        inside: list[Signed] = []
        for operand in operands:
            factors = self.parts.get(("multiply", operand[0]), ())
            constants = [factor for factor in factors if factor[0] in self.constants]
            others = [factor for factor in factors if factor[0] not in self.constants]
            inside.append((self._product(node.kind, others), 1) if constants and others else operand)
            outside += constants if others else []
        number = self._numbered(node, inside)
        return self._product(node.kind, [*outside, (number, 1)])

    def _product(self, kind: ir.Type, parts: Sequence[Signed]) -> int:
        factors = sorted(part for part in parts if self.constants.get(part[0]) != 1)
        if len(factors) == 1:
            return factors[0][0]
        number = self._number_of("multiply", Node("multiply", kind), factors)
        self.parts["multiply", number] = tuple(factors)
        return number

    def _parts(self, name: str, node: Node, operands: Sequence[Signed]) -> Sequence[Signed]:
        """The terms of a sum, or the factors of a product, flattened."""
        if 0 < float_bits(node.kind) < _SINGLE:
            return operands
        parts = [
            (part, sign * outer)
            for number, outer in operands
            for part, sign in self.parts.get((name, number), ((number, 1),))
        ]
        return parts if len(parts) <= _MOST_PARTS else operands


def _negative(signed: Signed) -> Signed:
    return signed[0], -signed[1]


def _without_signs(operands: Sequence[Signed]) -> list[Signed]:
    return [(number, 1) for number, _ in operands]


def _sign(operands: Sequence[Signed]) -> int:
    return prod(sign for _, sign in operands)
