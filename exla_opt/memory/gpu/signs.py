"""Code that XLA:GPU drops because indices are never negative: JAX tests each, as negative ones count from the end.

Its AlgebraicSimplifier knows that iotas and maxima with 0 are not negative, and that reversing dimensions of one
element changes nothing.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, splat_value


def known_side(op: ir.Operation) -> int | None:
    """The operand that a select always takes because the tested value is never negative; None if not known."""
    compare = defining_op(op.operands[0], "stablehlo.compare") if op.name == "stablehlo.select" else None
    if compare is None or "LT" not in str(compare.attributes["comparison_direction"]):
        return None
    value, limit = compare.operands
    return 2 if _number(limit) == 0 and _is_never_negative(value) else None


def reverses_nothing(op: ir.Operation, types: Types) -> bool:
    """Whether an op reverses dimensions of one element only."""
    if op.name != "stablehlo.reverse":
        return False
    shape = types.of(op.operands[0]).shape
    return all(shape[dim] == 1 for dim in integers(op, "dimensions", []))


def _is_never_negative(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "stablehlo.maximum":
        return op is not None and op.name == "stablehlo.iota"
    return any((number := _number(side)) is not None and number >= 0 for side in op.operands)


def _number(value: ir.Value) -> float | None:
    """The value that a tensor has everywhere, converted or not."""
    while (op := defining_op(value)) is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.convert"):
        value = op.operands[0]
    return splat_value(value)
