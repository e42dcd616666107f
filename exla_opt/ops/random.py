"""Ops that draw numbers: none is cut, as the numbers depend on how many are drawn at once.

jax.random expands its generator, threefry, to shifts and xors, which are recognised here too.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import operations_of

from .definition import OpDefinition, never_cut
from .traits import Trait, has_trait

OPS: dict[str, OpDefinition] = {
    f"stablehlo.{name}": never_cut("{} draws random numbers that depend on their position, such as those of jax.random")
    for name in ("rng", "rng_bit_generator")
}

# A group of threefry's rounds has four; other hashes have fewer in one loop.
_LEAST_ROUNDS = 4
# The number of ops between the last round and the words: the key is added, the words are joined and reshaped.
_MOST_STEPS = 6


def is_drawn(value: ir.Value) -> bool:
    """Whether the value holds words from threefry's rounds, possibly in another shape."""
    for _ in range(_MOST_STEPS):
        op = defining_op(value)
        block = value.owner if op is None else op.block
        if isinstance(block, ir.Block) and _has_rounds(block.owner.operation):
            return True
        if op is None:
            return False
        if _has_rounds(op) or _is_round(op) or any(_ends_round(operand) for operand in op.operands):
            return True
        if not has_trait(op, Trait.MOVES) or not len(op.operands):
            return False
        value = op.operands[0]
    return False


def _ends_round(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and _is_round(op)


def _has_rounds(op: ir.Operation) -> bool:
    """Whether it is a loop of such rounds."""
    if op.name != "stablehlo.while":
        return False
    return sum(map(_is_round, operations_of(op.regions[1].blocks[0]))) >= _LEAST_ROUNDS


def _is_round(op: ir.Operation) -> bool:
    """x ^ rotated(y), on 32-bit words."""
    if op.name != "stablehlo.xor" or "ui32" not in str(op.results[0].type):
        return False
    return any(_is_rotated(operand) for operand in op.operands)


def _is_rotated(value: ir.Value) -> bool:
    op = defining_op(value, "stablehlo.or")
    if op is None:
        return False
    shifts = [defining_op(operand) for operand in op.operands]
    names = {shift.name for shift in shifts if shift is not None}
    sources = {shift.operands[0] for shift in shifts if shift is not None}
    return names == {"stablehlo.shift_left", "stablehlo.shift_right_logical"} and len(sources) == 1
