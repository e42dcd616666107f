"""Cuts the forward part of a program into segments, and selects what each recomputes.

NOTE [Segments]

Up to the peak a program computes tensors that are read again after it: the activations of a network, which its gradient
reads from the last layer to the first. The steps up to the peak are cut into segments. Of all tensors that recomputing
needs, those that cross from one segment to the next are stored; the rest of a segment is recomputed just before its
first reader after the peak, from stored tensors (Chen, Xu, Zhang and Guestrin, 2016). Cuts are where little crosses.

The tensors of a segment may be independent: the outputs of convolutions are computed from the stored inputs of each,
once the statistics of a batch, which are small, are stored. Each part runs before its own first reader.

A segment need not be recomputed completely. The stored part is a minimum cut: a stored tensor costs its bytes, a
recomputed kernel its seconds times a price in bytes. With a high price only cheap tensors are recomputed, with none
everything between two cuts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from exla_opt.passes.loop_residuals.cut import Network

from .kernels import Schedule
from .maxima import depending

_UNLIMITED = 2**62
# The maximum number of candidate positions for cuts.
_MOST_PLACES = 128


@dataclass(frozen=True, slots=True)
class Problem:
    """The tensors of a schedule that could be recomputed.

    peak: the step; tensors computed up to it are early. wanted: early tensors that are alive at the peak and read after
    it. graph: the early steps from which they are recomputed. stored: tensors that stay in any case: they are too
    small, or must not or need not be recomputed. stays: the early tensors that are read after the peak from memory, or
    whose exact bits matter. copies: the compiler's own copies of a tensor or an argument before the peak, for readers
    after it. turned: the arguments with such copies, with the first step after the peak that reads either. maxima: the
    tensors to recompute with any of those that they were taken of, in the order of their steps. until: of the latter,
    the last step of such a maximum, or of one to recompute with that. first: of wanted tensors and such maxima, the
    first step after the peak that reads them.
    """

    schedule: Schedule
    peak: int
    wanted: frozenset[int]
    graph: frozenset[int]
    stored: frozenset[int]
    stays: frozenset[int]
    copies: dict[int, tuple[int, ...]]
    turned: dict[int, int]
    maxima: Mapping[int, frozenset[int]]
    until: Mapping[int, int]
    first: dict[int, int]

    def bytes_of(self, value: int) -> int:
        """The bytes of a stored tensor and of all copies that the compiler keeps of it."""
        return self.schedule.sizes[value] + self.bytes_of_copies(value)

    def bytes_of_copies(self, value: int) -> int:
        """The bytes of the copies that the compiler keeps of a tensor."""
        return sum(self.schedule.sizes[copy] for copy in self.copies.get(value, ()))

    def crossing(self) -> list[int]:
        """For each early step, the bytes that must be stored if the program is cut after it."""
        schedule = self.schedule
        change = [0] * (self.peak + 2)
        for step in self.graph:
            for value in schedule.kernels[step].made:
                last = max((reader for reader in schedule.used.get(value, ()) if reader in self.graph), default=step)
                last = max(last, self.until.get(value, step))
                if last > step and value not in self.stored:
                    size = schedule.sizes[value] if value in schedule.values else _UNLIMITED
                    change[step] += size
                    change[last] -= size
        total, found = 0, []
        for step in range(self.peak + 1):
            total += change[step]
            found.append(total)
        return found


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that are recomputed together.

    steps: the kernels that run again, in order. again: their results that are not read from storage. made: those of
    them, and of copies, that are read after the peak. inputs: the other tensors that they read, except arguments.
    before: the step before which it runs. seconds: of the run. needs: its peak in bytes, including all its results.
    """

    steps: tuple[int, ...]
    again: frozenset[int]
    made: tuple[int, ...]
    inputs: tuple[int, ...]
    before: int
    seconds: float
    needs: int


def places(problem: Problem, most: int) -> list[int]:
    """The steps after which the early part is cut: few bytes cross, and segments have at most `most` wanted bytes.

    A segment that cannot be cut may have more.
    """
    crossing = problem.crossing()
    weight = [0] * (problem.peak + 1)
    for value in problem.wanted:
        weight[problem.schedule.producer[value]] += problem.bytes_of(value)
    for step in range(1, len(weight)):
        weight[step] += weight[step - 1]
    candidates = _candidates(crossing, weight)
    # The least bytes with which everything up to a candidate is cut, and the candidate before it.
    best: list[tuple[int, int]] = [(0, -1)]
    positions = [-1, *candidates, problem.peak]
    before = [0, *(weight[place] for place in candidates), weight[-1]]
    cost = [0, *(crossing[place] for place in candidates), 0]
    for end in range(1, len(positions)):
        options = [(best[start][0] + cost[end], start) for start in range(end) if before[end] - before[start] <= most]
        best.append(min(options, default=(best[end - 1][0] + cost[end], end - 1)))
    found: list[int] = []
    end = len(positions) - 1
    while end > 0:
        end = best[end][1]
        if end > 0:
            found.append(positions[end])
    return found[::-1]


def _candidates(crossing: Sequence[int], weight: Sequence[int]) -> list[int]:
    """Of consecutive steps with about the same weight before them, the one with the fewest crossing bytes."""
    total = weight[-1] or 1
    best: dict[int, int] = {}
    for step in range(len(crossing) - 1):
        bucket = weight[step] * _MOST_PLACES // total
        if crossing[step] < _UNLIMITED and (bucket not in best or crossing[step] < crossing[best[bucket]]):
            best[bucket] = step
    return sorted(best.values())


def segments(problem: Problem, cuts: Sequence[int], prices: Sequence[float]) -> Iterator[list[tuple[Segment, ...]]]:
    """The segments that may be recomputed between cuts: for each price, the highest first, if they differ.

    Connected steps form a segment: steps that depend on other stored tensors form another one, with its own time.
    prices: bytes per second.
    """
    schedule = problem.schedule
    groups: list[list[int]] = [[] for _ in range(len(cuts) + 1)]
    for step in sorted(problem.graph):
        groups[bisect_right(cuts, step - 1)].append(step)
    for group in groups:
        inside = set(group)
        wanted = [value for step in group for value in schedule.kernels[step].made if value in problem.wanted]
        if not wanted:
            continue
        crosses = {
            value
            for step in group
            for value in schedule.kernels[step].made
            if any(reader in problem.graph and reader not in inside for reader in schedule.used.get(value, ()))
            or problem.until.get(value, step) > group[-1]
        }
        found: list[tuple[Segment, ...]] = []
        for price in prices:
            made = _segments(problem, group, wanted, crosses, price)
            if made and (not found or _steps(made) != _steps(found[-1])):
                found.append(made)
        if found:
            yield found


def _steps(found: Sequence[Segment]) -> set[int]:
    return {step for segment in found for step in segment.steps}


def _segments(
    problem: Problem, group: Sequence[int], wanted: Sequence[int], crosses: set[int], price: float
) -> tuple[Segment, ...]:
    """The steps of a group that a minimum cut recomputes."""
    schedule = problem.schedule
    enters = {step: place for place, step in enumerate(group)}
    made = [value for step in group for value in schedule.kernels[step].made]
    leaves = {value: len(group) + place for place, value in enumerate(made)}
    source, sink = len(group) + len(made), len(group) + len(made) + 1
    network = Network(sink + 1)
    for step in group:
        kernel = schedule.kernels[step]
        if not kernel.repeats:
            network.connect(source, enters[step], _UNLIMITED)
        elif cost := int(price * kernel.seconds):
            network.connect(source, enters[step], cost)
        for value in kernel.made:
            if value in crosses or value in problem.stored:
                network.connect(enters[step], leaves[value], 0)
            else:
                size = schedule.sizes[value] if value in schedule.values else _UNLIMITED
                network.connect(enters[step], leaves[value], size)
        for value in kernel.sources:
            if value in leaves:
                network.connect(leaves[value], enters[step], _UNLIMITED)
    for value in wanted:
        network.connect(leaves[value], sink, _UNLIMITED)
    for value in made:  # a maximum is recomputed if what it was taken of is
        for other in problem.maxima.get(value, ()):
            if other in leaves and other not in crosses and other not in problem.stored:
                network.connect(enters[schedule.producer[value]], enters[schedule.producer[other]], _UNLIMITED)
    side = network.cut(source, sink)
    steps = [step for step in group if enters[step] in side]
    kept = {value for step in steps for value in schedule.kernels[step].made if value in crosses}
    produced = [value for step in steps for value in schedule.kernels[step].made]
    results = [value for value in produced if value in problem.wanted and value not in kept]
    results += [value for value in wanted if value not in results and problem.copies.get(value)]
    steps, results, stored = _with_maxima(problem, steps, results, kept | problem.stored)
    at_once: dict[int, tuple[list[int], list[int]]] = {}
    for part_steps, part_results in _parts(schedule, steps, results, stored):
        before = min(problem.first[value] for value in part_results)
        together = at_once.setdefault(before, ([], []))
        together[0].extend(part_steps)
        together[1].extend(part_results)
    return tuple(_described(problem, sorted(own), found, stored) for own, found in at_once.values())


def _parts(
    schedule: Schedule, steps: Sequence[int], results: Sequence[int], stored: set[int]
) -> list[tuple[list[int], list[int]]]:
    """Connected steps and their results; a result that is only copied forms its own part."""
    leader = {step: step for step in steps}

    def find(step: int) -> int:
        while leader[step] != step:
            step = leader[step]
        return step

    for step in steps:
        for value in schedule.kernels[step].sources:
            before = schedule.producer.get(value)
            if before in leader and value not in stored:
                leader[find(step)] = find(before)
    parts: dict[int, tuple[list[int], list[int]]] = {}
    for step in steps:
        parts.setdefault(find(step), ([], []))[0].append(step)
    alone: list[tuple[list[int], list[int]]] = []
    for value in results:
        made = schedule.producer[value]
        if made in leader and value not in stored:
            parts[find(made)][1].append(value)
        else:
            alone.append(([], [value]))
    return [*parts.values(), *alone]


def _with_maxima(
    problem: Problem, steps: Sequence[int], results: Sequence[int], stored: set[int]
) -> tuple[list[int], list[int], set[int]]:
    """The steps that the results depend on, with the maxima of what they recompute; the results and the stored then."""
    schedule = problem.schedule
    maxima = {
        value: problem.maxima[value]
        for step in steps
        for value in schedule.kernels[step].made
        if value in problem.maxima
    }
    found = list(results)
    while True:
        needed = _needed(schedule, steps, found, stored)
        own = {value for step in needed for value in schedule.kernels[step].made} - stored
        more = depending(maxima, own).keys()
        if not more & stored and not (more & problem.first.keys()) - set(found):
            return needed, found, stored
        stored = stored - more
        found += [value for value in more if value in problem.first and value not in found]


def _needed(schedule: Schedule, steps: Sequence[int], results: Sequence[int], stored: set[int]) -> list[int]:
    """The steps that the results depend on."""
    read = set(results) - stored
    found = []
    for step in reversed(steps):
        kernel = schedule.kernels[step]
        if any(value in read for value in kernel.made):
            found.append(step)
            read.update(value for value in kernel.sources if value not in stored)
    return found[::-1]


def _described(problem: Problem, steps: Sequence[int], results: Sequence[int], stored: set[int]) -> Segment:
    schedule = problem.schedule
    own = frozenset(value for step in steps for value in schedule.kernels[step].made if value not in stored)
    delayed = [value for value in results if value not in own]
    inputs = {
        value
        for step in steps
        for value in schedule.kernels[step].sources
        if value not in own and value in schedule.producer
    }
    inputs.update(delayed)
    last = {value: step for step in steps for value in schedule.kernels[step].sources if value in own}
    last.update(dict.fromkeys(results, problem.peak + 1))
    alive = most = sum(schedule.sizes[value] for value in delayed)
    dying: dict[int, int] = {}
    for step in steps:
        kernel = schedule.kernels[step]
        alive += sum(schedule.sizes[value] for value in kernel.made)
        for value in kernel.made:
            dying[last.get(value, step)] = dying.get(last.get(value, step), 0) + schedule.sizes[value]
        most = max(most, alive + kernel.scratch)
        alive -= dying.get(step, 0)
    before = min(problem.first[value] for value in results)
    seconds = sum(schedule.kernels[step].seconds for step in steps)
    return Segment(tuple(steps), own, tuple(results), tuple(sorted(inputs)), before, seconds, most)


def held_back(problem: Problem, value: int) -> Segment:
    """An argument of which nothing is recomputed: only the compiler's own copy of it is delayed."""
    needs = problem.bytes_of_copies(value)
    return Segment((), frozenset(), (value,), (value,), problem.turned[value], 0.0, needs)
