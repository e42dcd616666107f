"""Whether a program compares what is picked from a tensor with the tensor itself.

As `x >= quantile(x)`: some element of x is its own quantile by nature, and whether it is counted hangs on its very
bits. Computed again, x may be rounded otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type, float_bits
from exla_opt.ops.traits import Trait, traits_of

_FLOWS = Trait.POINTWISE | Trait.MOVES


def compares_with_picked(
    sort: ir.Operation, chain: Sequence[ir.Operation], base: ir.Value, picked: Sequence[ir.Value]
) -> bool:
    """Whether an op of the sort's block answers a question about both an element that the sort has picked and its base.

    chain: the ops that make the base. picked: what was read of the sort. A question is a comparison, a step, a
    conversion to integers. What is picked is followed through moves and ops that compute element by element, and so is
    what it is joined with. Linear in the number of ops behind the chain.
    """
    made = _behind((base, *(result for op in chain for result in op.results)), sort, Trait(0))
    return any(
        _asks(op) and any(operand in made for operand in op.operands) for op in _readers(_behind(picked, sort, _FLOWS))
    )


def _behind(values: Iterable[ir.Value], sort: ir.Operation, through: Trait) -> dict[ir.Value, None]:
    """The values, and all that is computed from them by ops with a trait of `through` (any, without one).

    Ops in other blocks and what the sort makes are not followed.
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


def _readers(values: Iterable[ir.Value]) -> list[ir.Operation]:
    return [use.owner.operation for value in values for use in value.uses]


def _asks(op: ir.Operation) -> bool:
    """Whether the op's answer jumps where its operands change by a bit; that a number is one is no such question."""
    traits = traits_of(op.name)
    if not float_bits(element_type(op.operands[0])) or len(op.operands) > 1 and op.operands[0] == op.operands[1]:
        return False
    if traits & (Trait.COMPARES | Trait.STEPS):
        return True
    return Trait.POINTWISE in traits and not float_bits(element_type(op.results[0])) and Trait.SELECTS not in traits
