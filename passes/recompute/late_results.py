"""Results of a CPU's function, computed at its end: until then their memory is free for temporaries.

before:  %weights = convolution(%x, %gradient), ... the gradients of earlier layers ...; return %weights
after:   ... the gradients of earlier layers ...; %weights = convolution(select(%always, %x, %start), ...); return ...

XLA puts temporaries into the buffer of a result that is not yet written. The gradients of the last layers are written
first, when the activations of all others still wait. Here all that the kernels of such a result read is selected by a
boolean, always true, that depends on the last tensor that the program computes.

Legal: each op is computed once, from the same operands. Worthwhile: for results that are written before the peak and
read little that would not be in memory anyway, if the predicted memory falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import terminator
from exla_opt.memory.machine import Machine
from exla_opt.ops.effects import has_order
from exla_opt.remarks import Kind, Remark

from .build import compute_late, last_written
from .kernels import Schedule
from .readers import asked_about, is_read_after
from .repeat import read_ops

# Smaller results, as a fraction of the bytes alive at the peak, stay where they are.
_SMALL = 1 / 64
# What a result reads must be at most this fraction of it, unless it is in memory anyway.
_READS = 1 / 2
_LATE = "computed at the end: until then its memory is free for other tensors"


@dataclass(frozen=True, slots=True)
class LateResult:
    """A result that can wait: the steps that only it needs, and the tensors that these read."""

    result: int
    steps: tuple[int, ...]
    inputs: tuple[int, ...]


def find_late_results(block: ir.Block, schedule: Schedule, types: Types, machine: Machine) -> list[LateResult]:
    """The results of a function that should wait for its end."""
    peak = schedule.peak
    if not machine.breadth_first or peak is None:
        return []
    small = _SMALL * schedule.alive[peak]
    returned = {schedule.number[value] for value in terminator(block).operands if value in schedule.number}
    asked = asked_about(block, schedule, types)
    found = []
    for result in sorted(returned & schedule.held & schedule.values.keys()):
        if schedule.sizes[result] <= small or schedule.producer[result] > peak:
            continue
        steps = _own_steps(schedule, result)
        made = {value for step in steps for value in schedule.kernels[step].made}
        if not steps or made & asked or not all(schedule.kernels[step].repeats for step in steps):
            continue
        sources = {value for step in steps for value in schedule.kernels[step].sources} - made
        inputs = sorted(value for value in sources if value in schedule.producer)
        kept = sum(schedule.sizes[value] for value in inputs if value not in schedule.held)
        if kept <= _READS * schedule.sizes[result]:
            found.append(LateResult(result, tuple(sorted(steps)), tuple(inputs)))
    return found


def _own_steps(schedule: Schedule, result: int) -> set[int]:
    """The steps whose tensors only this result needs, its own among them; none if another op reads it."""
    value = schedule.values[result]
    steps: set[int] = set()
    if _is_read(value, steps, schedule, [value]):
        return steps
    steps.add(schedule.producer[result])
    stack = list(schedule.kernels[schedule.producer[result]].sources)
    while stack:
        number = stack.pop()
        step = schedule.producer.get(number)
        if step is None or step in steps or number not in schedule.values:
            continue
        if not _is_read(schedule.values[number], steps, schedule, ()):
            steps.add(step)
            stack += schedule.kernels[step].sources
    return steps


def _is_read(value: ir.Value, steps: set[int], schedule: Schedule, returned: Sequence[ir.Value]) -> bool:
    op = defining_op(value)
    return op is None or is_read_after(op, steps, schedule, returned)


def delay_results(block: ir.Block, results: Sequence[LateResult], schedule: Schedule, types: Types) -> list[Remark]:
    """Let the results wait for the end, in place; return a remark for each.

    Raises CannotOrder when the block cannot be put in order.
    """
    moved = {step for late in results for step in late.steps}
    after = last_written(schedule, len(schedule.kernels), moved)
    if after is None:
        return []
    ops = read_ops(block, schedule)
    remarks = []
    for late in results:
        value = schedule.values[late.result]
        kind, origin = types.of(value), defining_op(value)
        assert origin is not None
        remarks.append(Remark(Kind.PASSED, "EX018", "recompute", str(kind), kind.bytes, describe(origin), _LATE))
        compute_late(block, ops, late.result, late.inputs, after, schedule, types)
    restore_order(block, has_order)
    return remarks
