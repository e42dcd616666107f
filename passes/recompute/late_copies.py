"""The compiler's own copies of tensors on a CPU, made just before they are read.

XLA:CPU copies an operand of some convolutions and products into another dimension order, as soon as it is there: an
activation of a network, which its gradient reads much later, is in memory twice. Here the reader's operand depends on a
number that is computed just before, so the copy waits:

before:  convolution(%x, %gradient)
after:   convolution(select(%always, %x, %start), %gradient), where %always depends on the number

Legal: the boolean is always true. Worthwhile: for copies that wait at the peak, if what they are copied from is in
memory then as well and need not be kept much longer, and if the predicted memory falls. The select is fused
into the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.opaque import always
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.memory.machine import Machine
from exla_opt.ops.effects import has_order
from exla_opt.remarks import Remark

from .build import last_written, start_of
from .kernels import Schedule

# Copies below this fraction of the bytes alive at the peak may be early.
_SMALL = 1 / 256


@dataclass(frozen=True, slots=True)
class LateCopy:
    """A copy that can wait: of an operand of `op`, at position `operand`, until `after` is there."""

    op: ir.Operation
    operand: int
    after: ir.Value


def find_late_copies(block: ir.Block, schedule: Schedule, types: Types, machine: Machine) -> list[LateCopy]:
    """The copies that are in memory at the peak, as are their originals, and are read after it only."""
    peak = schedule.peak
    if not machine.breadth_first or peak is None:
        return []
    small = _SMALL * schedule.alive[peak]
    found = []
    for copy, result in schedule.copied_for.items():
        first = min(schedule.readers.get(copy, ()), default=-1)
        made = schedule.producer[copy]
        if schedule.sizes[copy] <= small or not made <= peak < first:
            continue
        originals = schedule.kernels[made].sources
        op = defining_op(result)
        if not originals or op is None or op.block != block:
            continue
        if not all(_is_there(schedule, value, peak + 1) for value in originals):
            continue
        kept = sum(schedule.sizes[value] for value in originals if not _is_there(schedule, value, first))
        if kept > schedule.sizes[copy]:
            continue
        after = last_written(schedule, first)
        positions = [
            place
            for place, operand in enumerate(op.operands)
            if set(originals).issubset(schedule.written_behind(operand, types))
        ]
        if len(positions) == 1 and after is not None:
            found.append(LateCopy(op, positions[0], after))
    return found


def _is_there(schedule: Schedule, value: int, step: int) -> bool:
    """Whether a tensor is in memory until a step anyway."""
    if value in schedule.arguments or value in schedule.held:
        return True
    return max(schedule.readers.get(value, ()), default=-1) >= step


def delay_copies(block: ir.Block, copies: Sequence[LateCopy]) -> list[Remark]:
    """Let the copies wait, in place; no tensor of the program is computed elsewhere, so there are no remarks.

    Raises CannotOrder when the block cannot be put in order.
    """
    for copy in copies:
        value = copy.op.operands[copy.operand]
        with ir.InsertionPoint(terminator(block)), copy.op.location:
            ready = always(copy.after)
            copy.op.operands[copy.operand] = stablehlo.select(ready, value, start_of(value.type, ready))
    restore_order(block, has_order)
    return []
