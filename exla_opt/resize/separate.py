"""Gives every reader of a broadcast its own one, so that dimensions of equal length are not taken for one dimension."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import is_splat
from exla_opt.ir.walk import all_blocks

_LENGTHENED = frozenset("stablehlo.broadcast_in_dim stablehlo.iota chlo.constant stablehlo.constant".split())
_PASSED_ON = frozenset("stablehlo.reshape stablehlo.convert".split())


def separate_broadcasts(module: ir.Module) -> None:
    """Copy constants of one value, iotas and broadcasts for each of their uses, in place.

    Equal ones may have been merged: zeros of 64 channels and zeros of 64 examples. Their number grows by that of their
    uses.
    """
    for block in list(all_blocks(module)):
        for view in reversed(list(block.operations)):  # readers first: their copies are uses as well
            op = view.operation
            if _is_separable(op):
                _copy_for_uses(op)


def _is_separable(op: ir.Operation) -> bool:
    """Whether the op, or what it reads, makes elements alike."""
    if op.name.endswith(".constant"):
        return op.name in _LENGTHENED and is_splat(op)
    if op.name in _PASSED_ON:
        owner = op.operands[0].owner
        return not isinstance(owner, ir.Block) and _is_separable(owner.operation)
    return op.name in _LENGTHENED


def _copy_for_uses(op: ir.Operation) -> None:
    uses = [(use.owner, use.operand_number) for use in op.results[0].uses]
    for user, number in uses[1:]:
        user.operands[number] = op.clone(ip=ir.InsertionPoint(op)).operation.results[0]
