"""Finds comparisons of elements selected from a tensor with the tensor itself.

As in `x >= quantile(x)`: some element of x is its own quantile by definition, and the result depends on its exact bits.
A recomputed x may be rounded differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.walk import CONTROL_FLOW, operands_of
from exla_opt.ops.comparisons import jumps_inside
from exla_opt.ops.traits import Trait, traits_of

_FLOWS = Trait.POINTWISE | Trait.MOVES


def compares_with_picked(
    sort: ir.Operation, chain: Sequence[ir.Operation], base: ir.Value, picked: Sequence[ir.Value]
) -> bool:
    """Whether an op of the sort's block tests both an element that the sort has selected and its base.

    chain: the ops that compute the base. picked: the values read from the sort. A test is a comparison, a step, or a
    conversion to integers; a loop or a branch that reads both tests them if it tests any floats. Selected elements are
    traced through moves and elementwise ops, also with other operands. Linear in the number of ops after the chain.
    """
    made = _behind((base, *(result for op in chain for result in op.results)), sort, Trait(0))
    readers = [_standing_in(op, sort.block) for op in _readers(_behind(picked, sort, _FLOWS))]
    asking = (op for op in readers if (jumps_inside(op) if op.name in CONTROL_FLOW else _asks(op)))
    return any(operand in made for op in asking for operand in operands_of(op))


def _behind(values: Iterable[ir.Value], sort: ir.Operation, through: Trait) -> dict[ir.Value, None]:
    """The values, and all that is computed from them by ops with a trait of `through` (any, without one).

    Ops in other blocks and the results of the sort are not traced.
    """
    found = dict.fromkeys(values)
    queue = list(found)
    while queue:
        for op in _readers([queue.pop()]):
            if op == sort or op.block != sort.block or (through and not traits_of(op.name) & through):
                continue
            fresh = [result for result in op.results if result not in found]
            found.update(dict.fromkeys(fresh))
            queue += fresh
    return found


def _standing_in(op: ir.Operation, block: ir.Block) -> ir.Operation:
    """The op, or the one of the block that contains it."""
    while op.block != block:
        outer = op.parent
        assert outer is not None
        op = outer.operation
    return op


def _readers(values: Iterable[ir.Value]) -> list[ir.Operation]:
    return [use.owner.operation for value in values for use in value.uses]


def _asks(op: ir.Operation) -> bool:
    """Whether the op's result jumps if its operands change by a bit; a test for NaN does not."""
    traits = traits_of(op.name)
    if not float_bits(element_type(op.operands[0])) or len(op.operands) > 1 and op.operands[0] == op.operands[1]:
        return False
    if traits & (Trait.COMPARES | Trait.STEPS):
        return True
    return Trait.POINTWISE in traits and not float_bits(element_type(op.results[0])) and Trait.SELECTS not in traits
