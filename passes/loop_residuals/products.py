"""Products of matrices that a loop can compute step by step: rows of the first operand times all of the second one.

A scan over the outputs of a layer, or over their gradients, reads one step of a product that was computed for all
steps at once. A step's product takes its share of the operations, but with fewer rows these take longer, and every step
reads the second operand again.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.memory.block import Block
from exla_opt.memory.dots import dot_dims
from exla_opt.memory.machine import Machine
from exla_opt.memory.operation import read_operation
from exla_opt.memory.reading import read_block
from exla_opt.memory.seconds import seconds_of

# A step may take this much longer, as a part of its time.
_LONGER = 0.1


def is_by_rows(op: ir.Operation, types: Types) -> bool:
    """Whether each step of a product is that of one step of its first operand with the second one."""
    if op.name != "stablehlo.dot_general" or has_discardable_attributes(op):
        return False
    batches, summed = dot_dims(op, 0)
    return not batches and 0 not in summed and bool(types.of(op.operands[0]).shape)


def is_quick_by_rows(op: ir.Operation, body: ir.Block, types: Types, machine: Machine) -> bool:
    """Whether a step of the loop with this body takes hardly longer if it computes its own rows of the product."""
    steps = types.of(op.results[0]).shape[0]
    own = seconds_of(_product(op, types, 1), machine)
    longer = own - seconds_of(_product(op, types, steps), machine) / max(steps, 1)
    step = seconds_of(read_block(body, types, machine), machine) + machine.seconds_per_trip
    return longer <= _LONGER * step


def _product(op: ir.Operation, types: Types, steps: int) -> Block:
    """A block of the product alone, with this many steps."""
    left, right, out = (types.of(value) for value in (*op.operands, op.results[0]))
    block = Block()
    for kind, is_cut in ((left, True), (right, False), (out, True)):
        parts = kind.shape[0] if is_cut and kind.shape[0] else 1
        shape = (steps, *kind.shape[1:]) if is_cut else kind.shape
        block.add_tensor(shape, kind.bytes // parts * (steps if is_cut else 1), kind.dtype)
    block.ops.append(read_operation(op, (0, 1), (2,), types))
    block.returned.append(2)
    return block
