"""Attempts to fit a module into a memory limit: the pipeline's output for one pair of sizes, and its memory.

Predictions rule out attempts far from the limit; the compiler decides on the others. Without a compiler, the prediction
plus a margin decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from jaxlib.mlir import ir

from exla_opt.budget.attempt import MARGIN, NEVER, RECOMPUTE, SPLITTER, Attempt, Kind, Split, split_of
from exla_opt.budget.measured import Measure, Measured
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.walk import inside_out, number_of_ops
from exla_opt.ir.write import serialise
from exla_opt.memory.effort import simulated
from exla_opt.memory.machine import as_written
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import SIZELESS, AfterPass, Outcome, run_pipeline

# Predictions are normally within this factor (docs/results.md): programs closer than this may be equally good.
_ACCURACY = 1.25
# How far above the limit a prediction may be for a compile, before and after the first one of its kind, which shows
# the error of the predictions.
_ABOVE = (_ACCURACY, 1.05)
# The same for library calls in loops, where XLA's copies are hard to predict.
_ACCURACY_WITH_CALLS = 1.5
# Only thresholds that differ by this factor show whether smaller ones gain anything.
_MUCH_LARGER = 4
# A peak that falls by less does not count as falling.
_GAIN = 1.02
# The maximum number of compiles in a search, enforced by `Search._measured`. One is reserved for a program that should
# fit by the compiles so far, for the one that should need the least of all, or, where nothing fits, for the original.
MOST_COMPILES = 3
# How many ops the attempts of a search may simulate before no more are made: once one of them seems to fit, and while
# none does. That takes about one minute, and two, without the compiles.
_MOST_SIMULATED, _MOST_IN_VAIN = 500_000, 1_000_000


class CannotCompile(Exception):
    """No compiler is available here, or it refuses the module; the message says why."""


@dataclass(frozen=True, slots=True)
class _Finished:
    """What the passes from `recompute` on make of a program. split, final: as in `Attempt`."""

    module: ir.Module
    outcomes: tuple[Outcome, ...]
    timeline: Timeline
    split: Split
    final: Split

    @property
    def largest(self) -> int:
        """The bytes of the largest temporary tensor."""
        return max((tensor.bytes for tensor in self.timeline.tensors), default=0)


class Search:
    """The attempts so far, and the compiler's findings.

    has_calls: whether the module calls a library. ratios: compiled over predicted temporary memory of each
    program, by kind. refusal: why no compiler is available any more, "" while one is.
    compiles_left: how many compiles are left; an attempt not compiled by then does not count as fitting.
    ended_early: whether attempts were left out because those so far took too much effort.
    """

    def __init__(
        self,
        module: ir.Module,
        names: Sequence[str],
        options: Options,
        limit: int,
        measure: Measure | None,
        verify_each: bool,
        after_pass: AfterPass | None,
        compiles: int = MOST_COMPILES,
    ) -> None:
        shared = next((number for number, name in enumerate(names) if name not in SIZELESS), len(names))
        self.limit, self.measure = limit, measure
        self.verify_each, self.after_pass = verify_each, after_pass
        self.shared = run_pipeline(module, names[:shared], options, verify_each=verify_each, after_pass=after_pass)
        self.names, self.module = names[shared:], module
        self.has_calls = bool(inside_out(module, "stablehlo.custom_call"))
        self.attempts: list[Attempt] = []
        self.known: dict[bytes, Measured] = {}
        self.finished: dict[tuple[bytes, tuple[str, ...], Options], _Finished] = {}
        self.ratios: defaultdict[Kind, list[float]] = defaultdict(list)
        self.refusal = ""
        self.compiles_left = compiles
        self.ended_early = False
        self.simulated_before = simulated()

    @property
    def room(self) -> int:
        """The bytes that the limit leaves after arguments and results."""
        unsplit = self.attempts[0].predicted
        return self.limit - unsplit.peak + unsplit.temp

    @property
    def aim(self) -> int:
        """The bytes to aim for in predictions; without a compiler, a margin for the temporary ones stays free."""
        return self.limit if self.measure is not None else self.limit - int(max(self.room, 0) * (1 - 1 / MARGIN))

    def attempt(self, sizes: Options) -> Attempt:
        """Run the passes with these sizes, and predict the memory and time of the result."""
        found = self.predicted(self.module, self.shared, self.names, sizes)
        self.attempts.append(found)
        return found

    def within_effort(self, attempts: Iterator[Attempt]) -> Iterator[Attempt]:
        """The attempts, each made when it is asked for, until they have simulated as many ops as they may."""
        while not self.is_exhausted():
            found = next(attempts, None)
            if found is None:
                return
            yield found
        self.ended_early = True

    def is_exhausted(self) -> bool:
        """Whether the attempts so far took all the effort that a search may take."""
        most = _MOST_SIMULATED if any(map(self.seems_to_fit, self.attempts)) else _MOST_IN_VAIN
        return simulated() - self.simulated_before > most

    def predicted(self, start: ir.Module, before: Outcome, names: Sequence[str], sizes: Options) -> Attempt:
        """Run passes on a copy of a module, and predict the result. before: the outcome of the earlier passes.

        Tensors are recomputed only if the other passes leave the module above the limit. Where two attempts are equal
        before `recompute`, the passes from there on run once.
        """
        module = copy_of(start)
        at = names.index(RECOMPUTE) if RECOMPUTE in names and sizes.memory_limit is not None else len(names)
        split = self._run(module, names[:at], sizes)
        rest = tuple(names[at:])
        # Only the splitter reads these.
        alike = (
            sizes
            if SPLITTER in rest
            else replace(sizes, calls_in_loops=False, nested_tiles=False, separates_parts=False)
        )
        key = (_digest(serialise(module, "bytecode")), rest, alike)
        if key not in self.finished:
            self.finished[key] = self._finish(module, rest, sizes)
        found = self.finished[key]
        done = (before, split, *found.outcomes)
        remarks = tuple(remark for outcome in done for remark in outcome.remarks)
        outcome = Outcome(remarks, tuple(each for outcome in done for each in outcome.seconds))
        memory, seconds = found.timeline.memory, found.timeline.seconds
        return Attempt(found.module, outcome, sizes, memory, found.largest, found.split, found.final, seconds)

    def _finish(self, module: ir.Module, names: Sequence[str], sizes: Options) -> _Finished:
        """Run the passes from `recompute` on; read the result."""
        machine, limit = as_written(sizes.machine), sizes.memory_limit
        plain = copy_of(module) if names else None
        last = self._run(module, names[1:], sizes)
        timeline = read_timeline(module, machine)
        split = final = split_of(timeline, sizes)
        outcomes = [last]
        if plain is not None and limit is not None and timeline.memory.peak > limit:
            ops = number_of_ops(plain)
            recomputed = self._run(plain, names[:1], sizes)
            outcomes = [recomputed, last]
            if recomputed.remarks or number_of_ops(plain) != ops:  # tensors that are only delayed make no remark
                module, outcomes = plain, [recomputed, self._run(plain, names[1:], sizes)]
                timeline = read_timeline(module, machine)
                final = split_of(timeline, sizes)
        return _Finished(module, tuple(outcomes), timeline, split, final)

    def _run(self, module: ir.Module, names: Sequence[str], sizes: Options) -> Outcome:
        return run_pipeline(module, names, sizes, verify_each=self.verify_each, after_pass=self.after_pass)

    def is_stuck_above(self, sizes: Options) -> bool:
        """Whether a much larger threshold gained nothing, as the peak consists of tensors that it leaves unsplit.

        Attempts with other placements of library calls do not count, as they split another program. Nor do smaller
        slices of larger tensors: they may be slower.
        """
        alike = [found for found in self.attempts if found.options.calls_in_loops == sizes.calls_in_loops]
        alike = [found for found in alike if found.options.slice_bytes >= sizes.slice_bytes]
        last = _next_above(alike, sizes)
        before = None if last is None else _next_above(alike, last.options)
        if last is None or before is None:
            return False
        gained = before.split.peak > _GAIN * last.split.peak
        return not gained and _ACCURACY * last.split.large > last.split.peak

    def may_fit(self, found: Attempt) -> bool:
        """Whether a compile is worth it, given the errors of predictions so far."""
        # The model is least accurate for library calls in loops: the last compile may be spent on the first such
        # program, unless its figures are those of the program with the calls outside, which it then probably equals.
        is_first = found.options.calls_in_loops and not any(
            other.options.calls_in_loops and other.measured is not None for other in self.attempts
        )
        if is_first and found.predicted.peak <= _ACCURACY_WITH_CALLS * self.limit and not self.has_equal(found):
            return True
        if self.known and self.compiles_left <= 1:
            return found.predicted_with(self.ratio_of(found)) <= self.limit
        above = _ABOVE[min(len(self.ratios[found.kind]), len(_ABOVE) - 1)]
        return found.predicted_with(self.ratio_of(found)) <= above * self.limit

    def has_equal(self, found: Attempt) -> bool:
        """Whether the same sizes gave the same memory with another placement of library calls."""
        return any(
            other.options != found.options
            and replace(other.options, calls_in_loops=found.options.calls_in_loops) == found.options
            and other.predicted == found.predicted
            for other in self.attempts
        )

    def ratio_of(self, found: Attempt) -> float:
        """Compiled over predicted temporary memory of the last program of this kind."""
        return next(reversed(self.ratios[found.kind]), 1.0)

    def expected_peak(self, found: Attempt) -> int:
        """The bytes that a compiler planned, or the predicted ones with the error of predictions so far."""
        return found.predicted_with(self.ratio_of(found)) if found.measured is None else found.measured

    def seems_to_fit(self, found: Attempt) -> bool:
        """Whether it is probably within the limit, judged without another compile."""
        if found.measured is None and self.measure is not None:
            return found.predicted_with(self.ratio_of(found)) <= self.limit
        return found.peak <= self.limit

    def fits(self, found: Attempt) -> bool:
        """Whether it is within the limit, decided by the compiler if there is one."""
        if found.measured is None and self.may_fit(found):
            self.compile(found)
        return found.peak <= self.limit and (found.measured is not None or self.measure is None)

    def compile(self, found: Attempt) -> None:
        """Compile it, if a compiler is left. The compiler is given up if it refuses the unsplit program too."""
        if self.measure is None or found.measured is not None:
            return
        try:
            known = self._measured(found)
        except CannotCompile as error:
            if not self.known and not self._takes_the_unsplit(found):
                self.measure, self.refusal = None, str(error)
                return
            known = self.known[_digest(serialise(found.module, "bytecode"))] = Measured(NEVER)
        if known is None:
            return
        self._take(found, known)
        temp = known.peak - found.predicted.peak + found.predicted.temp
        if found.predicted.temp and known.peak < NEVER:
            self.ratios[found.kind].append(temp / found.predicted.temp)

    def _takes_the_unsplit(self, refused: Attempt) -> bool:
        """Whether the compiler accepts the unsplit program: then the refused one is at fault."""
        unsplit = self.attempts[0]
        if refused is unsplit:
            return False
        try:
            found = self._measured(unsplit)
        except CannotCompile:
            return False
        if found is not None:
            self._take(unsplit, found)
        return found is not None

    def _take(self, found: Attempt, known: Measured) -> None:
        """Take the compiler's figures: those of what is written for the program."""
        found.measured, found.estimated, found.note = known.peak, known.seconds, known.note
        instead = known.instead
        if instead is not None and (instead.of_changed if found.is_changed else instead.of_unchanged):
            is_first = found is self.attempts[0] or not found.is_changed
            found.measured, found.is_refused = instead.peak if is_first else NEVER, True

    def _measured(self, found: Attempt) -> Measured | None:
        """The compiler's figures, compiled once for equal programs; None if no compiles are left."""
        data = serialise(found.module, "bytecode")
        digest = _digest(data)  # different sizes may give the same program
        if digest not in self.known:
            if self.measure is None or not self.compiles_left:
                return None
            self.compiles_left -= 1
            self.known[digest] = self.measure(data)
        return self.known[digest]


def _next_above(attempts: Sequence[Attempt], sizes: Options) -> Attempt | None:
    """The attempt with the smallest threshold that is much larger than that of `sizes`, if there is one."""
    above = [found for found in attempts if found.options.size_threshold >= _MUCH_LARGER * sizes.size_threshold]
    return min(above, key=lambda found: found.options.size_threshold, default=None)


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()
