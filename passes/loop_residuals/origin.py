"""Finds the op that computes the values that a loop stores, so that remarks name a line of the user's program."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.remarks import Kind, Reason, Remark

from .stacks import updates

NAME = "loop-residuals"
# Carries may be passed around in a cycle.
_MOST_OPS = 64


def origin_of(loop: ir.Operation, carry: int) -> ir.Operation:
    """The op that computes the slices written into a carry, inside inner loops too.

    For a carry that is stored, the op that computes the next one.
    """
    body = loop.regions[1].blocks[0]
    op = updates(loop)[carry]
    value = op.operands[1]
    for _ in range(_MOST_OPS):
        if isinstance(value.owner, ir.Block):
            if value.owner != body:
                return op
            value = terminator(body).operands[ir.BlockArgument(value).arg_number]
        found = defining_op(value)
        if found is None or found.block != body:
            return op
        op = found
        if op.name == "stablehlo.while":
            carry, body = ir.OpResult(value).result_number, op.regions[1].blocks[0]
            update = updates(op).get(carry)
            value = terminator(body).operands[carry] if update is None else update.operands[1]
        elif has_trait(op, Trait.REARRANGES):
            value = op.operands[0]
        else:
            break
    return op


def remark(types: Types, loop: ir.Operation, carry: int, kind: Kind, reason: Reason) -> Remark:
    """The remark on a carry that is stored, at the line that computes it."""
    tensor = types.of(loop.results[carry])
    return Remark(kind, reason.code, NAME, str(tensor), tensor.bytes, describe(origin_of(loop, carry)), reason.text)
