"""Loops of a CPU's program that overwrite a tensor, after all other ops that read it: XLA:CPU copies it otherwise.

before:  %loss = f(%weights), %new = while(%i = 0, %w = %weights) { ... update a slice of %w ... }
after:   %loss = f(%weights), %new = while(%i = select(%always, 0, 1), %w = %weights) { ... }

XLA:CPU looks for the copies that loops need before it orders the ops. So what a loop carries and changes is copied
first, unless the data flow has all others that read it run before the loop: a step of a training program that updates
donated weights, for example, whose loss adds up their squares too. Here the counter of the loop is there only once the
results of the others are: the boolean is always true, but no compiler knows.

Legal: each op is computed once, from the same operands, and no other reader depends on the loop. Worthwhile: if the
predicted memory falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.loops import counting, step_of
from exla_opt.ir.opaque import bits_of, once_known
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import operations_of, terminator
from exla_opt.memory.machine import Machine
from exla_opt.ops.effects import has_order
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.remarks import Kind, Remark

from .kernels import Schedule

# Smaller tensors, as a fraction of the bytes alive at the peak, may be copied.
_SMALL = 1 / 64
# How many kernels are searched for one with a result to wait for.
_MOST_TRIED = 32
_WAITS = "overwritten once all others have read it: it is not copied"


@dataclass(frozen=True, slots=True)
class Overwriting:
    """A loop that should wait. place: of its counter. values: what it overwrites. after: what to wait for."""

    loop: ir.Operation
    place: int
    values: tuple[ir.Value, ...]
    after: tuple[ir.Value, ...]


def find_overwriting(block: ir.Block, schedule: Schedule, machine: Machine) -> list[Overwriting]:
    """The loops that overwrite a tensor that others read at any time, each with the written results of these."""
    peak = schedule.peak
    if not machine.breadth_first or peak is None:
        return []
    small = _SMALL * schedule.alive[peak]
    found = []
    waits: dict[int, list[int]] = {}
    for op in operations_of(block):
        count = counting(op) if op.name == "stablehlo.while" else None
        if count is None:
            continue
        own = schedule.producer.get(schedule.number.get(op.results[0], -1))
        if own is None:
            continue
        others: dict[ir.Value, list[ir.Value]] = {}
        for value in _overwritten(op):
            number = schedule.number.get(value)
            if number is None or schedule.sizes[number] <= small:
                continue
            if after := _others(number, own, schedule, waits):
                others[value] = after
        if others:
            ends = dict.fromkeys(each for after in others.values() for each in after)
            waits[own] = [schedule.producer[schedule.number[each]] for each in ends]
            found.append(Overwriting(op, count.place, tuple(others), tuple(ends)))
    return found


def let_wait(block: ir.Block, found: Sequence[Overwriting], types: Types) -> list[Remark]:
    """Let the loops wait, in place; return a remark for each tensor.

    Raises CannotOrder when the block cannot be put in order.
    """
    remarks = []
    for each in found:
        loop, place = each.loop, describe(each.loop)
        with ir.InsertionPoint(loop), loop.location:
            loop.operands[each.place] = once_known(loop.operands[each.place], each.after)
        kinds = map(types.of, each.values)
        remarks += [Remark(Kind.PASSED, "EX019", "recompute", str(kind), kind.bytes, place, _WAITS) for kind in kinds]
    restore_order(block, has_order)
    return remarks


def _overwritten(loop: ir.Operation) -> list[ir.Value]:
    """The initial values of what a loop changes from step to step."""
    body = loop.regions[1].blocks[0]
    steps = zip(loop.operands, body.arguments, terminator(body).operands, strict=True)
    return [value for value, before, after in steps if before != after]


def _others(number: int, own: int, schedule: Schedule, waits: Mapping[int, Sequence[int]]) -> list[ir.Value] | None:
    """What the step `own` must wait for, so that all other kernels that read a tensor have run.

    None if one of these must run after it, or there is none to wait for. waits: what steps wait for already.
    """
    kernels = schedule.kernels
    steps = [step for step in schedule.used.get(number, ()) if step != own]
    steps = [step for step in steps if any(made in schedule.values for made in kernels[step].made)]
    first = _first(min((own, *steps)), waits)
    before = _behind(own, schedule, waits, first)
    seen = before - {own}
    found = []
    for step in sorted(set(steps) - before, reverse=True):
        if step in seen:
            continue  # a later one needs it
        end = _end(step, schedule)
        if end is None:
            return None
        behind = _behind(schedule.producer[schedule.number[end]], schedule, waits, first, seen)
        if own in behind:
            return None
        seen |= behind
        found.append(end)
    return found[::-1]


def _first(step: int, waits: Mapping[int, Sequence[int]]) -> int:
    """The first step through which one from `step` on may depend on another such step."""
    while (before := min((loop for loop, ends in waits.items() if max(ends) >= step), default=step)) < step:
        step = before
    return step


def _end(step: int, schedule: Schedule) -> ir.Value | None:
    """A tensor of which no element is there before a kernel has run: its own, or one that is computed from it.

    Elements of a pointwise result may be computed apart.
    """
    seen, queue = {step}, [step]
    for current in queue:
        made = [schedule.values[value] for value in schedule.kernels[current].made if value in schedule.values]
        if (found := next(filter(_is_unknown, made), None)) is not None:
            return found
        used = (after for value in schedule.kernels[current].made for after in schedule.used.get(value, ()))
        queue += [after for after in dict.fromkeys(used) if after not in seen][: _MOST_TRIED - len(queue)]
        seen.update(queue)
    return None


def _is_unknown(value: ir.Value) -> bool:
    """Whether the bits of a tensor's first element are not known before all of it is, as those of a counter are."""
    op = defining_op(value)
    if op is None or not bits_of(value) or 0 in ir.RankedTensorType(value.type).shape:
        return False
    if op.name != "stablehlo.while":
        return not traits_of(op.name) & (Trait.POINTWISE | Trait.MOVES)
    place, body = ir.OpResult(value).result_number, op.regions[1].blocks[0]
    before, after = body.arguments[place], terminator(body).operands[place]
    return before != after and step_of(before, after) is None


def _behind(
    step: int, schedule: Schedule, waits: Mapping[int, Sequence[int]], first: int, known: Set[int] = frozenset()
) -> set[int]:
    """The steps from `first` on that a step depends on, and itself; not those behind known ones."""
    seen, stack = {step}, [step]
    while stack:
        current = stack.pop()
        read = [schedule.producer.get(value, -1) for value in schedule.kernels[current].sources]
        for before in (*read, *waits.get(current, ())):
            if before >= first and before not in seen and before not in known:
                seen.add(before)
                stack.append(before)
    return seen
