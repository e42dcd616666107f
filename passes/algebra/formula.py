"""A value as a product: its factors, each to a power, by letters. Analysis only.

A letter is the number of an index of one formula. A factor is a tensor and the letters of its dimensions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.passes.algebra.places import Place, place_below

# The significand bits to which results are rounded. Formulas contain no narrower floats.
_DIGITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
# A formula has at most this many ops: further operands are factors themselves.
_MOST_OPS = 64


@dataclass(frozen=True, slots=True)
class Factor:
    """A tensor and the letters of its dimensions, None for those of size 1.

    role: a "mask" is 1 where the tensor is true and 0 elsewhere, "masked" is the inverse.
    """

    value: ir.Value
    place: Place
    role: Literal["number", "mask", "masked"] = "number"


@dataclass(slots=True)
class Formula:
    """A product of factors and one number.

    sizes: of the letters. powers: of the factors; masks have 1, however often they apply. digits: of the most rounded
    intermediate result, except those of an opened dot. overflows: whether there is arithmetic on floats of small range
    (f16). leaves: values that are taken as factors.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    powers: dict[Factor, int] = field(default_factory=dict)
    coefficient: float = 1.0
    digits: int = _DIGITS["f64"]
    overflows: bool = False
    leaves: Collection[ir.Value] = ()

    def new_letters(self, sizes: list[int]) -> list[int | None]:
        """A letter for each dimension of more than one index; None for the others."""
        letters: list[int | None] = []
        for size in sizes:
            letters.append(None if size == 1 else len(self.sizes))
            if size != 1:
                self.sizes[len(self.sizes)] = size
        return letters

    def round_to(self, value: ir.Value) -> None:
        """Record that the product is rounded to the type of this value."""
        self.digits = min(self.digits, _DIGITS[str(element_type(value))])

    def multiply(self, factor: Factor, power: int) -> None:
        """Multiply by one more factor."""
        self.powers[factor] = 1 if factor.role != "number" else self.powers.get(factor, 0) + power

    def join(self, other: Formula) -> None:
        """Multiply by another product of the same letters."""
        for factor, power in other.powers.items():
            self.multiply(factor, power)
        self.coefficient *= other.coefficient
        self.digits = min(self.digits, other.digits)
        self.overflows |= other.overflows

    def read(self, value: ir.Value, place: Place) -> None:
        """Multiply by the factors of a value: of its products and quotients, through transposes and broadcasts."""
        block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
        left = _MOST_OPS
        stack = [(value, place, 1)]
        while stack:
            value, place, power = stack.pop()
            number = splat_value(value)
            if number and float_bits(element_type(value)):
                # A power would amplify an error where the inverse of a very small number is infinite.
                self.coefficient = self.coefficient * float(number) if power > 0 else self.coefficient / float(number)
                continue
            op = defining_op(value)
            left -= 1
            parts = None
            if left >= 0 and op is not None and op.block == block and value not in self.leaves:
                parts = self._parts(op, place, power)
            if parts is None:
                self.multiply(Factor(value, place), power)
            else:
                stack += parts

    def _parts(self, op: ir.Operation, place: Place, power: int) -> list[tuple[ir.Value, Place, int]] | None:
        """The op's factors and their powers; None for an op that is no part of a product."""
        if len(op.results) != 1 or has_discardable_attributes(op):
            return None
        if str(element_type(op.results[0])) not in _DIGITS:
            return None
        if (below := place_below(op, place)) is not None:
            return [(op.operands[0], below, power)]
        match op.name:
            case "stablehlo.convert" if str(element_type(op.operands[0])) in _DIGITS:
                self.round_to(op.results[0])
                return [(op.operands[0], place, power)]
            case "stablehlo.negate":
                self.coefficient *= (-1) ** power
                return [(op.operands[0], place, power)]
            case "stablehlo.multiply":
                self._compute(op)
                return [(operand, place, power) for operand in op.operands]
            case "stablehlo.divide":
                self._compute(op)
                return [(op.operands[0], place, power), (op.operands[1], place, -power)]
            case "stablehlo.select" if power > 0:
                return self._masked(op, place, power)
        return None

    def _compute(self, op: ir.Operation) -> None:
        self.round_to(op.results[0])
        self.overflows |= str(element_type(op.results[0])) == "f16"

    def _masked(self, op: ir.Operation, place: Place, power: int) -> list[tuple[ir.Value, Place, int]] | None:
        mask, kept, other = op.operands
        where = place if build.shape_of(mask) else ()
        if _is_zero(other):
            self._mask(mask, where, "mask")
            return [(kept, place, power)]
        if _is_zero(kept):
            self._mask(mask, where, "masked")
            return [(other, place, power)]
        return None

    def _mask(self, mask: ir.Value, place: Place, role: Literal["mask", "masked"]) -> None:
        mask, place = under_moves(mask, place, self.leaves)
        self.multiply(Factor(mask, place, role), 1)


def _is_zero(value: ir.Value) -> bool:
    """Whether the tensor is zero everywhere; JAX writes some zeros as a converted and broadcast integer."""
    while (op := defining_op(value)) is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.convert"):
        value = op.operands[0]
    return splat_value(value) == 0


def is_float(value: ir.Value) -> bool:
    """Whether the value has a type that formulas can contain."""
    return str(element_type(value)) in _DIGITS


def under_moves(value: ir.Value, place: Place, leaves: Collection[ir.Value] = ()) -> tuple[ir.Value, Place]:
    """The source of a value behind broadcasts and transposes, and its place; stops at one of the leaves."""
    while value not in leaves and (op := defining_op(value)) is not None and not has_discardable_attributes(op):
        below = place_below(op, place)
        if below is None:
            break
        value, place = op.operands[0], below
    return value, place
