"""Which numbers are rounded to positions, and what is made of them."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type
from exla_opt.ops.traits import Trait, has_trait

# Ops of floats whose result jumps; a conversion to integers does as well.
_ROUNDINGS = frozenset(
    {"stablehlo.floor", "stablehlo.ceil", "stablehlo.round_nearest_afz", "stablehlo.round_nearest_even"}
)


def rounds(op: ir.Operation) -> bool:
    """Whether an op rounds floats to integers, or to floats that are integers."""
    if op.name == "stablehlo.convert":
        return _is_float(op.operands[0]) and _is_integer(op.results[0])
    return op.name in _ROUNDINGS


def is_index_and_weight(rounded: ir.Value) -> bool:
    """Whether integers computed from a rounded number decide what is read, and a difference is computed from it too."""
    index = weight = False
    seen = {rounded}
    queue = [rounded]
    while queue and not (index and weight):
        value = queue.pop()
        for use in value.uses:
            op = use.owner.operation
            if _is_float(value) and op.name == "stablehlo.subtract":
                weight = True
            elif _is_integer(value) and not _keeps(op, use.operand_number):
                index = True
            elif _keeps(op, use.operand_number):
                new = [result for result in op.results if result not in seen]
                seen.update(new)
                queue += new
    return index and weight


def _keeps(op: ir.Operation, operand: int) -> bool:
    """Whether an op computes numbers from those of this operand, or moves them, element by element."""
    if has_trait(op, Trait.MOVES):
        return operand == 0 or not has_trait(op, Trait.CUTS)
    return has_trait(op, Trait.POINTWISE) and not has_trait(op, Trait.COMPARES)


def _is_float(value: ir.Value) -> bool:
    return isinstance(element_type(value), ir.FloatType)


def _is_integer(value: ir.Value) -> bool:
    return isinstance(element_type(value), ir.IntegerType)
