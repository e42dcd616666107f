"""The bytes that an op needs only while it runs: partial sums, copies in another order, widened floats."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from .block import Operation, is_short, sums_apart
from .buffers import Buffers

# A matrix of up to this many rows is solved at once; a larger one block by block, into a second buffer.
_SOLVED_AT_ONCE = 128
# The bytes of a float32: the type in which some machines multiply narrower floats, and sum bfloat16.
_WIDE = 4


def scratch_of(buffers: Buffers, op: Operation, step: int, mine: Collection[int]) -> int:
    """The bytes that an op without bodies needs only while it runs, in this step.

    mine: the tensors in buffers of this block.
    """
    sizes, machine = buffers.block.sizes, buffers.machine
    if machine.kind != "cpu":
        workspace = machine.workspace if op.name == "dot_general" else 0
        turned = [op.operands[side] for side in op.copied]
        if op.name == "custom_call":  # a copy in a library's order becomes the result
            olds = [old for new, old in buffers.in_place(op) if new in mine]
            turned = [value for value in turned if value not in olds]
        return sum(sizes[value] for value in turned) + workspace
    if op.name == "reduce" and not is_short(op, machine) and not sums_apart(op, machine):
        return _partial_sums(buffers, op) + _widened(buffers, op, step, mine)
    if op.name == "scatter":
        return _scattered(buffers, op, step, mine)
    if op.name == "triangular_solve":
        if len(buffers.block.shapes[op.operands[0]]) > 2:
            return sizes[op.operands[0]] + sizes[op.results[0]]
        return sizes[op.results[0]] if op.lengths[0] > _SOLVED_AT_ONCE else 0
    if op.name == "custom_call":
        copied = {op.operands[side] for side in op.copied} - {old for _, old in buffers.in_place(op)}
        return sum(sizes[value] for value in copied if value not in buffers.fusion.producer)
    if op.name != "dot_general":
        return 0
    copied = {op.operands[side] for side in op.copied}
    copied |= {value for value in op.operands if buffers.is_column_major(value)}
    return sum(sizes[value] for value in copied - op.narrow) + _widened(buffers, op, step, mine)


def widened_before(buffers: Buffers, op: Operation) -> dict[int, int]:
    """The tensors that XLA:CPU widens before a loop that slices them, with the bytes of the copies: twice their own."""
    if op.name != "while" or not buffers.machine.widens:
        return {}
    # Captures of an outer loop are widened before that one.
    block = buffers.block
    own = (value for value in sorted(op.narrow) if value in buffers.fusion.producer or value in block.arguments)
    return {value: 2 * block.sizes[value] for value in own}


def _partial_sums(buffers: Buffers, op: Operation) -> int:
    """The bytes of the sums over windows that make up a long reduce."""
    block, longest = buffers.block, buffers.machine.longest_fused_reduction
    first = op.operands[0]
    size = _WIDE * prod(block.shapes[first]) if first in op.narrow else block.sizes[first]
    return size // max(prod(min(longest or length, length) for length in op.lengths), 1)


def _widened(buffers: Buffers, op: Operation, step: int, mine: Collection[int]) -> int:
    """The bytes of the float32 tensors that XLA:CPU widens narrower ones to for this op, unless in their place."""
    block, needed = buffers.block, 0
    for value in op.narrow:
        in_place = value in mine and (value in op.results or buffers.last.get(value) == step)
        needed += _WIDE * prod(block.shapes[value]) - (block.sizes[value] if in_place else 0)
    return needed


def _scattered(buffers: Buffers, op: Operation, step: int, mine: Collection[int]) -> int:
    """The bytes of the widened tensors of a scatter into narrow floats, which are twice as large.

    Updates that it reads last are widened where they are computed.
    """
    sizes, updates = buffers.block.sizes, op.operands[len(op.results) + 1 :]
    dying = {value for value in updates if value in mine and buffers.last.get(value) == step}
    return sum(2 * sizes[value] - (sizes[value] if value in dying else 0) for value in op.narrow)
