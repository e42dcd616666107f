"""Updates of what a loop carries, which XLA:CPU computes in place only if no reshape comes in between."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.values import defining_op
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE


def updates_of(loop: ir.Operation) -> set[ir.Value]:
    """The results of functions of elements on the paths from a carry of a loop to what its body returns.

    Linear in the number of ops of the body.
    """
    block = loop.regions[1].blocks[0]
    ops = [view.operation for view in block.operations]
    before: set[ir.Value] = set()
    waiting = list(ops[-1].operands)
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if op is None or value in before or op.block != block or op.name not in STABLEHLO_POINTWISE:
            continue
        before.add(value)
        waiting.extend(op.operands)
    found: set[ir.Value] = set()
    for op in ops:
        is_before = op.name in STABLEHLO_POINTWISE and op.results[0] in before
        if is_before and any(_is_carry(value, block) or value in found for value in op.operands):
            found.add(op.results[0])
    return found


def _is_carry(value: ir.Value, block: ir.Block) -> bool:
    return isinstance(value, ir.BlockArgument) and value.owner == block
