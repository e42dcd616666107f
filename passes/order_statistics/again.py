"""Tensors that are recomputed in each pass instead of being kept, and the cost of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.memory.builder import Builder
from exla_opt.memory.machine import Machine
from exla_opt.memory.operation import read_operation
from exla_opt.memory.seconds import seconds_of_ops
from exla_opt.ops.comparisons import asks
from exla_opt.ops.effects import has_order
from exla_opt.ops.traits import Trait, traits_of

_BARRIER = "stablehlo.optimization_barrier"
_ONCE = Trait.LIBRARY | Trait.RANDOM | Trait.COLLECTIVE | Trait.ORDERED | Trait.CONTROL_FLOW
_ROUNDS_NOTHING = Trait.MOVES | Trait.GENERATES | Trait.COMPARES | Trait.EXACT


@dataclass(frozen=True, slots=True)
class Origin:
    """How a big tensor is computed.

    chain: the ops that compute it from small tensors, arguments and values that must be computed once, in program
    order. is_exact: whether it has the same bits wherever it is computed.
    """

    chain: tuple[ir.Operation, ...]
    is_exact: bool


def origin_of(value: ir.Value, block: ir.Block, types: Types, threshold: int) -> Origin:
    """How the block computes a tensor from tensors of at most `threshold` bytes. Linear in the number of ops."""
    chain: list[ir.Operation] = []
    opened: set[ir.Value] = set()
    is_exact = True
    stack = [(value, False)]
    while stack:
        current, is_made = stack.pop()
        op = _made_in(current, block)
        if is_made and op is not None:
            chain.append(op)
            continue
        if op is None:
            is_exact = is_exact and isinstance(current.owner, ir.Block)
            continue
        first = op.results[0]
        if first in opened or (current != value and types.of(current).bytes <= threshold):
            continue
        opened.add(first)
        is_exact = is_exact and _rounds_nothing(op)
        if not _may_repeat(op):
            is_exact = False
            continue
        stack.append((first, True))
        stack += [(operand, False) for operand in op.operands]
    return Origin(tuple(chain), is_exact)


def _made_in(value: ir.Value, block: ir.Block) -> ir.Operation | None:
    owner = value.owner
    return owner.operation if not isinstance(owner, ir.Block) and owner.operation.block == block else None


def _may_repeat(op: ir.Operation) -> bool:
    """Whether the op may be recomputed, with readers of either result."""
    traits = traits_of(op.name)
    known = bool(traits) and not traits & _ONCE and op.name not in CONTROL_FLOW
    return known and not has_order(op) and not has_discardable_attributes(op) and not asks(op)


def _rounds_nothing(op: ir.Operation) -> bool:
    traits = traits_of(op.name)
    if any(isinstance(element_type(value), ir.ComplexType) for value in op.operands):
        return bool(traits & (Trait.MOVES | Trait.GENERATES))  # the abs of a complex number is a root
    if traits & _ROUNDS_NOTHING:
        return True
    if isinstance(element_type(op.results[0]), ir.IntegerType):
        return all(isinstance(element_type(value), ir.IntegerType) for value in op.operands)
    return Trait.POINTWISE | Trait.SELECTS in traits


def seconds_of_chain(chain: Sequence[ir.Operation], types: Types, machine: Machine) -> float:
    """The seconds of the arithmetic of some ops."""
    builder = Builder(types)
    for op in chain:
        operands, results = builder.all_of(op.operands), builder.all_of(op.results)
        builder.add(read_operation(op, operands, results, types, machine))
    return sum(seconds_of_ops(builder.block, machine, any_shape=True))


def clone_here(chain: Sequence[ir.Operation], value: ir.Value, trip: ir.Value) -> ir.Value:
    """The tensor, recomputed by its chain in a loop's body, at the current insertion point.

    trip: the number of the trip. The chain's inputs go through a barrier with it, or XLA would compute the tensor, and
    everything in the chain that is loop-invariant, before the loop, and keep it.
    """
    made = {result for op in chain for result in op.results}
    needed = [operand for op in chain for operand in op.operands if operand not in made] or [value]
    edges = [edge for edge in dict.fromkeys(needed) if not _is_generated(edge)]
    copies: dict[ir.Value, ir.Value] = {}
    if edges:
        held = [*edges, trip]
        barrier = ir.Operation.create(_BARRIER, [each.type for each in held], held)
        copies.update(zip(edges, list(barrier.results)[:-1], strict=True))
    for op in chain:
        clone = op.clone(ip=ir.InsertionPoint.current).operation
        for index, operand in enumerate(op.operands):
            if operand in copies:
                clone.operands[index] = copies[operand]
        copies.update(zip(op.results, clone.results, strict=True))
    return copies.get(value, value)


def _is_generated(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and Trait.GENERATES in traits_of(op.name)
