"""Chooses the segments to recompute, and how much of each: the fewest seconds with which the memory fits.

The memory of a plan is that of the schedule with changed live ranges: a recomputed tensor dies with its last early
reader and is born again with its segment; a segment's inputs live until it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import operations_of
from exla_opt.options import Options

from .kernels import Schedule
from .maxima import depending, find_maxima, last_steps
from .readers import asked_about, first_late_steps
from .segments import Problem, Segment, held_back, places, segments

# Tensors below this fraction of the bytes alive at the peak are stored.
_SMALL = 2000
# The bytes of a segment, as fractions of all that is alive at the peak and read after it.
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
# The value of a second, in bytes, as fractions of what the machine writes in one.
_PRICES = (0.5, 0.15, 0.05, 0.0)
# This much more memory than the least is as good.
_ABOUT = 1.02
# The amounts of memory to plan for, each as a fraction of the one before.
_ROOM = 0.9


@dataclass(frozen=True, slots=True)
class Plan:
    """Segments to recompute, without shared steps. peak: the approximate temporary bytes. seconds: added."""

    segments: tuple[Segment, ...]
    peak: int
    seconds: float


def find_problem(schedule: Schedule, block: ir.Block, types: Types, options: Options) -> Problem | None:
    """The tensors that could be recomputed to lower the peak of a block; None if there are none."""
    peak = schedule.peak
    if peak is None:
        return None
    first, copies = _first_late_readers(schedule, peak)
    named = first_late_steps(operations_of(block), schedule, peak, first.keys(), types)
    first = {value: min(step, named.get(value, step)) for value, step in first.items()}
    asked = asked_about(block, schedule, types)
    small = schedule.alive[peak] // _SMALL
    stored = set(asked | schedule.held)
    for value in first:
        if schedule.sizes[value] <= small or not schedule.kernels[schedule.producer[value]].repeats:
            stored.add(value)
    maxima = find_maxima(block, schedule, peak)
    stored.update(value for maximum in asked & maxima.keys() for value in maxima.pop(maximum))
    wanted = frozenset(first.keys() - stored)
    if not wanted:
        return None
    graph = _graph(schedule, wanted)
    maxima = depending(maxima, {value for step in graph for value in schedule.kernels[step].made} - stored)
    graph |= _graph(schedule, maxima)
    stays = frozenset(first) | asked
    again = {value: step for value, step in first.items() if value in wanted or value in maxima}
    turned = _turned(schedule, peak, copies, named, small)
    until = last_steps(maxima, schedule)
    return Problem(
        schedule, peak, wanted, frozenset(graph), frozenset(stored), stays, copies, turned, maxima, until, again
    )


def _graph(schedule: Schedule, wanted: Iterable[int]) -> set[int]:
    """The steps from which tensors are recomputed."""
    found: set[int] = set()
    stack = [schedule.producer[value] for value in wanted]
    while stack:
        step = stack.pop()
        if step in found:
            continue
        found.add(step)
        if schedule.kernels[step].repeats:
            sources = schedule.kernels[step].sources
            stack += [schedule.producer[value] for value in sources if value in schedule.producer]
    return found


def _turned(
    schedule: Schedule, peak: int, copies: dict[int, tuple[int, ...]], named: dict[int, int], small: int
) -> dict[int, int]:
    """The arguments that the compiler copies, in large copies before the peak, each with its first reader after it."""
    found: dict[int, int] = {}
    for value in schedule.arguments:
        made = copies.get(value, ())
        kernels = (schedule.kernels[schedule.producer[copy]] for copy in made)
        if any(source in schedule.producer for kernel in kernels for source in kernel.read):
            continue
        readers = [step for copy in made for step in schedule.readers[copy]]
        if sum(schedule.sizes[copy] for copy in made) > small and min(readers, default=peak) > peak:
            found[value] = min(*readers, named.get(value, readers[0]))
    return found


def _first_late_readers(schedule: Schedule, peak: int) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """The tensors of the IR computed up to the peak and read after it, with the first step that reads them.

    And those that the compiler copies, for example in another dimension order: a copy is made as soon as its original
    exists, and for a recomputed tensor later.
    """
    found: dict[int, int] = {}
    copies: dict[int, list[int]] = {}
    for step in range(peak + 1, len(schedule.kernels)):
        stack = list(schedule.kernels[step].read)
        while stack:
            value = stack.pop()
            if schedule.producer.get(value, step) > peak or value in found:
                continue
            found[value] = step
            if value not in schedule.values:
                stack += schedule.kernels[schedule.producer[value]].read
                for source in schedule.kernels[schedule.producer[value]].read:
                    copies.setdefault(source, []).append(value)
    of_program = {*schedule.values, *schedule.arguments}
    return (
        {value: step for value, step in found.items() if value in schedule.values},
        {value: tuple(made) for value, made in copies.items() if value in of_program},
    )


def find_plans(problem: Problem, options: Options) -> list[Plan]:
    """Plans, each with less memory and more seconds than the one before; the last takes about the least memory.

    They depend only on the program: for each of several amounts of memory, the fastest that takes no more. So a larger
    limit can choose from those of a smaller one.
    """
    total = sum(map(problem.bytes_of, problem.wanted))
    prices = [price * options.machine.bytes_per_second for price in _PRICES]
    memory = _Memory(problem)
    late = [[(held_back(problem, value),)] for value in problem.turned]
    found: list[Plan] = []
    seen: set[tuple[int, ...]] = set()
    for part in _PARTS:
        cuts = places(problem, total // part)
        if tuple(cuts) in seen:
            continue
        seen.add(tuple(cuts))
        choices: list[Sequence[tuple[Segment, ...]]] = [*segments(problem, cuts, prices), *late]
        if choices:
            found += _pruned(memory, choices)
    best: list[Plan] = []
    for plan in sorted(found, key=lambda plan: (plan.seconds, plan.peak)):
        if not best or plan.peak < best[-1].peak:
            best.append(plan)
    return best


def _pruned(memory: _Memory, choices: Sequence[Sequence[tuple[Segment, ...]]]) -> Iterator[Plan]:
    """For each amount of memory, remove the segments that are not needed for it, the slowest first.

    choices: for each group of steps the segments that it may recompute, fewer of them first.
    """
    needed = [len(options) for options in choices]

    def chosen(levels: Sequence[int]) -> list[Segment]:
        groups = [options[level - 1] for options, level in zip(choices, levels, strict=True) if level]
        return [segment for group in groups for segment in group]

    def seconds(place: int) -> float:
        return sum(segment.seconds for segment in choices[place][-1])

    # Tensors that are read soon after the peak may need more memory recomputed than stored.
    least = memory.peak(chosen(needed))
    for place in sorted(range(len(choices)), key=lambda place: min(each.before for each in choices[place][-1])):
        needed[place], before = 0, needed[place]
        if (peak := memory.peak(chosen(needed))) <= least:
            least = peak
        else:
            needed[place] = before
    # Segments that recompute nothing help with the next peak too.
    dear = [place for place in range(len(choices)) if seconds(place)]
    order = sorted(dear, key=lambda place: -seconds(place))
    last: Plan | None = None
    for room in _rooms(memory.before, int(_ABOUT * least)):
        if last is not None and last.peak <= room:
            continue
        levels = list(needed)
        for place in order:
            for level in range(levels[place]):
                before, levels[place] = levels[place], level
                if memory.peak(chosen(levels)) <= room:
                    break
                levels[place] = before
        taken = chosen(levels)
        last = Plan(tuple(taken), memory.peak(taken), sum(segment.seconds for segment in taken))
        yield last


def _rooms(most: int, least: int) -> Iterator[int]:
    """Amounts of memory from the most down to the least: fixed ones, whatever the least is, and the least."""
    room = most * _ROOM
    while room > least:
        yield int(room)
        room *= _ROOM
    yield least


class _Memory:
    """The bytes of a schedule step by step, and with segments recomputed."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.schedule = problem.schedule
        self.alive = np.array(problem.schedule.alive, dtype=np.int64)
        self.before = int(self.alive.max())
        # The last step that reads a tensor up to the peak, and the last of all.
        self.last_early: dict[int, int] = {}
        self.last: dict[int, int] = {}
        for value, step in self.schedule.producer.items():
            readers = self.schedule.readers.get(value, [])
            self.last[value] = max(readers, default=step)
            self.last_early[value] = max((each for each in readers if each <= problem.peak), default=step)

    def peak(self, chosen: Sequence[Segment]) -> int:
        """The approximate peak in bytes."""
        schedule = self.schedule
        change = np.zeros(len(self.alive) + 1, dtype=np.int64)
        until: dict[int, int] = {}
        again = {value: segment for segment in chosen for value in segment.made}
        for segment in chosen:
            for value in segment.inputs:
                until[value] = max(until.get(value, -1), segment.before - 1)
        copied: dict[int, int] = {}  # a copy of several tensors waits for the last of them
        for value, segment in again.items():
            for copy in self.problem.copies.get(value, ()):
                copied[copy] = max(copied.get(copy, 0), segment.before)
            if value in self.problem.turned:
                continue
            last = max(self.last_early[value], until.get(value, -1))
            if last + 1 < segment.before:
                change[last + 1] -= schedule.sizes[value]
                change[segment.before] += schedule.sizes[value]
            if last >= segment.before:  # another segment still reads the original
                change[segment.before] += schedule.sizes[value]
                change[last + 1] -= schedule.sizes[value]
        for copy, before in copied.items():
            if schedule.producer[copy] < before:
                change[schedule.producer[copy]] -= schedule.sizes[copy]
                change[before] += schedule.sizes[copy]
        for value, step in until.items():
            if value in schedule.held or value in again:
                continue
            last = self.last[value]
            if last < step:
                change[last + 1] += schedule.sizes[value]
                change[step + 1] -= schedule.sizes[value]
        alive = self.alive + np.cumsum(change[:-1])
        most = int(alive.max())
        for segment in chosen:
            most = max(most, int(alive[segment.before - 1]) + segment.needs)
        return most
