"""Independent chains of a CPU's program, one after another.

before:  %a1 = f(%x), %b1 = f(%y), %a2 = g(%a1), %b2 = g(%b1), ...      the order in which XLA:CPU runs them
after:   %a1 = f(%x), %a2 = g(%a1), ...; wait; %b1 = f(%y), %b2 = g(%b1), ...

XLA:CPU runs kernels breadth first: a step of each chain, then the next step of each. So the tensors of all chains are
in memory at once, as those of an optimiser that orthogonalises one matrix after another. Here the kernels that begin a
chain wait, in a loop of one trip (see Forms in `build`), for the end of the chain before.

Legal: each op is computed once, from the same operands. Worthwhile: for chains that hold a part of the peak which no
other op reads, if the predicted peak falls. Chains are found in a depth-first order of the kernels (`_groups`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.order import restore_order
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import operations_of
from exla_opt.memory.machine import Machine
from exla_opt.ops.effects import has_order
from exla_opt.remarks import Kind, Remark

from .build import is_computed, move_behind
from .kernels import Schedule
from .readers import asked_about, read_by
from .repeat import read_ops

# Smaller tensors, as a fraction of what is alive at the peak, connect no kernels and begin no chain.
_SMALL = 1 / 256
# A chain that holds a smaller fraction of it is not delayed.
_PART = 1 / 32
# A chain ends where at most one part in so many of what it held is still needed.
_NARROW = 2


@dataclass(frozen=True, slots=True)
class Chain:
    """Kernels that run after those of another chain.

    starts: the steps that begin it. made: their results. after: a tensor of the chain before. steps: the number of all.
    """

    starts: tuple[int, ...]
    made: tuple[int, ...]
    after: int
    steps: int


def find_chains(block: ir.Block, schedule: Schedule, types: Types, machine: Machine) -> list[Chain]:
    """The chains that should wait for another one, in the order in which they would run."""
    if not machine.breadth_first or not schedule.alive:
        return []
    most = max(schedule.alive)
    small = int(_SMALL * most)
    groups = _groups(schedule, small)
    large = [group for group, holds in groups if holds >= _PART * most]
    if len(large) < 2:
        return []
    place = {step: number for number, step in enumerate(step for group, _ in groups for step in group)}
    first = _first_readers(block, schedule, place, types)
    asked = asked_about(block, schedule, types)
    found = []
    moved: set[int] = set()
    after = None
    for group in large:
        starts = _starts(schedule, group, small)
        made = tuple(value for step in starts for value in schedule.kernels[step].made)
        may_wait = all(schedule.kernels[step].repeats for step in starts) and all(
            value in schedule.values and value not in asked and first.get(value, len(place)) > place[group[0]]
            for value in made
        )
        if made and after is not None and may_wait:
            found.append(Chain(tuple(starts), made, after, len(group)))
            moved.update(made)
        after = _end(schedule, group, moved) or after
    return found


def wait_for_others(block: ir.Block, chains: Sequence[Chain], schedule: Schedule, types: Types) -> list[Remark]:
    """Let the first kernels of each chain wait, in place; return a remark for each chain.

    Raises CannotOrder when the block cannot be put in order.
    """
    ops = read_ops(block, schedule)
    remarks = []
    for chain in chains:
        values = [schedule.values[value] for value in chain.made]
        largest = max(values, key=lambda value: types.of(value).bytes)
        message = f"computed after another chain of ops, with the {chain.steps - len(chain.starts)} that follow it"
        kind, origin = types.of(largest), defining_op(largest)
        assert origin is not None
        place = describe(origin)
        remarks.append(Remark(Kind.PASSED, "EX017", "recompute", str(kind), kind.bytes, place, message))
        move_behind(block, ops, chain.starts, chain.made, schedule.values[chain.after], schedule, types)
    restore_order(block, has_order)
    return remarks


def _groups(schedule: Schedule, small: int) -> list[tuple[list[int], int]]:
    """The steps in depth-first order, cut between chains; each with the most bytes that only the chain reads.

    A step begins another chain if it makes a big tensor, reads neither the last one nor a small one made since, and if
    most of what the current chain has held is no longer needed.
    """
    order = _depth_first(schedule)
    unread = {value: len(steps) for value, steps in schedule.used.items() if value not in schedule.held}
    groups: list[tuple[list[int], int]] = []
    current: list[int] = []
    last: tuple[int, ...] = ()
    mine: set[int] = set()
    alive = most = 0
    for step in order:
        kernel = schedule.kernels[step]
        is_big = any(schedule.sizes[value] > small for value in kernel.made)
        if is_big and most > small and _NARROW * alive <= most and not set(last) & set(kernel.sources):
            groups.append((current, most))
            current, mine, alive, most = [], set(), 0, 0
        current.append(step)
        mine.update(kernel.made)
        alive += sum(schedule.sizes[value] for value in kernel.made if unread.get(value))
        most = max(most, alive)
        for value in kernel.sources:
            if value in unread:
                unread[value] -= 1
                alive -= schedule.sizes[value] if value in mine and not unread[value] else 0
        last = kernel.made if is_big else (*last, *kernel.made)
    return [*groups, (current, most)]


def _depth_first(schedule: Schedule) -> list[int]:
    """The steps after all that they read: of several operands, first the one whose steps need the most memory."""
    count = len(schedule.kernels)
    before: list[list[int]] = []
    needs: list[int] = []
    for kernel in schedule.kernels:
        own = sum(schedule.sizes[value] for value in kernel.made)
        read = {schedule.producer[value] for value in kernel.sources if value in schedule.producer}
        kept = {step: sum(schedule.sizes[value] for value in schedule.kernels[step].made) for step in read}
        order = sorted(read, key=lambda step: (kept[step] - needs[step], step))
        need = held = 0
        for step in order:
            need = max(need, held + needs[step])
            held += kept[step]
        before.append(order)
        needs.append(max(need, held + own))
    found: list[int] = []
    seen = [False] * count
    is_read = {step for steps in before for step in steps}
    stack = [(step, False) for step in range(count - 1, -1, -1) if step not in is_read]
    while stack:
        step, is_complete = stack.pop()
        if is_complete:
            found.append(step)
        elif not seen[step]:
            seen[step] = True
            stack.append((step, True))
            stack += [(each, False) for each in reversed(before[step]) if not seen[each]]
    return found


def _starts(schedule: Schedule, group: Sequence[int], small: int) -> list[int]:
    """The steps of a group that read nothing of it, and make a big tensor."""
    made = {value for step in group for value in schedule.kernels[step].made}
    return [
        step
        for step in group
        if made.isdisjoint(schedule.kernels[step].sources)
        and any(schedule.sizes[value] > small for value in schedule.kernels[step].made)
    ]


def _first_readers(block: ir.Block, schedule: Schedule, place: Mapping[int, int], types: Types) -> dict[int, int]:
    """For each tensor that a kernel writes, by its number, the first place of a step that is computed from it.

    Steps that compute the tensor again, in a kernel of their own, count too. place: of each step in depth-first order.
    """
    first: dict[ir.Value, int] = {}
    never = len(place)
    for op in reversed(operations_of(block)):
        own = min((first.get(value, never) for value in op.results), default=never)
        for value in op.results:
            if schedule.is_written(value):
                own = min(own, place[schedule.producer[schedule.number[value]]])
        for operand in read_by(op, types):
            first[operand] = min(first.get(operand, never), own)
    return {number: first.get(value, never) for number, value in schedule.values.items()}


def _end(schedule: Schedule, group: Sequence[int], moved: Collection[int]) -> int | None:
    """A tensor of the last step of a group that computes one, and that is not moved itself."""
    for step in reversed(group):
        for value in schedule.kernels[step].made:
            if value in schedule.values and value not in moved and is_computed(schedule.values[value]):
                return value
    return None
