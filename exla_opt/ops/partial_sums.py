"""Partial sums inside a loop that is cut: the ops that may be applied before they are added up.

    f(a) + f(b) = f(a + b)

A value of a body that is summed over the cut factor is a partial sum in every tile. Ops that are linear in it may run
on the partial sums, and the tiles' results are added at the end of the loop; all others need the complete sum.
"""

from __future__ import annotations

from collections.abc import Collection

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import splat_value

from .factor import Factor, Kind
from .reducers import body_of, componentwise, is_identity
from .traits import Trait, has_trait

# Linear in the first operand, whatever the others are.
_LINEAR_IN_FIRST = frozenset(
    "stablehlo." + name
    for name in "broadcast_in_dim divide dynamic_slice gather negate reshape reverse slice transpose".split()
)
# Linear in these operands together.
_LINEAR_IN_ALL = frozenset("stablehlo." + name for name in "add concatenate dynamic_update_slice pad subtract".split())
_PRODUCTS = frozenset("stablehlo." + name for name in "convolution dot dot_general multiply".split())
_TOGETHER = {"stablehlo.dynamic_update_slice": 2}


def adds_up(op: ir.Operation, factor: Factor) -> bool:
    """Whether the tiles' results along a reducing factor are added, from zero."""
    if factor.kind is not Kind.REDUCING:
        return False
    if has_trait(op, Trait.CONTRACTS):
        return True
    if op.name != "stablehlo.reduce" or set(componentwise(body_of(op)) or ("none",)) != {"add"}:
        return False
    return all(is_identity("add", init) for init in list(op.operands)[len(op.results) :])


def is_zero(value: ir.Value) -> bool:
    """Whether a tensor is known to be zero everywhere, so that it is its own partial sum in every tile."""
    return splat_value(value) == 0


def linear_operands(op: ir.Operation, partial: Collection[int]) -> tuple[int, ...] | None:
    """The operands that must be partial sums, or zero, for the result to be one; None when it never is.

    partial: the operands that are partial sums. All others are the same in every tile.
    """
    name, count = op.name, len(op.operands)
    needed: tuple[int, ...] | None = None
    if name in _LINEAR_IN_FIRST:
        needed = (0,)
    elif name in _LINEAR_IN_ALL:
        needed = tuple(range(_TOGETHER.get(name, count)))
    elif name in _PRODUCTS and len(partial) == 1:
        needed = tuple(partial)
    elif name == "stablehlo.select":
        needed = (1, 2)
    elif name == "stablehlo.convert" and _keeps_sums(op):
        needed = (0,)
    elif name == "stablehlo.reduce" and set(componentwise(body_of(op)) or ("none",)) == {"add"}:
        needed = tuple(range(count))
    if needed is None or not set(partial) <= set(needed) or not _divides_exactly(op):
        return None
    return needed


def _keeps_sums(op: ir.Operation) -> bool:
    """Whether a conversion is from floats to floats that are no narrower."""
    before, after = float_bits(element_type(op.operands[0])), float_bits(element_type(op.results[0]))
    return 0 < before <= after


def _divides_exactly(op: ir.Operation) -> bool:
    """False for integers, which a division rounds: the quotients of the parts do not add up to that of the sum."""
    return op.name != "stablehlo.divide" or not isinstance(element_type(op.results[0]), ir.IntegerType)
