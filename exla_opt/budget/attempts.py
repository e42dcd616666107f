"""Attempts to fit a module into a memory limit: the pipeline's output for one pair of sizes, and its memory.

Predictions rule out attempts far from the limit; the compiler decides on the others. Without a compiler, the prediction
plus a margin decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from jaxlib.mlir import ir

from exla_opt.budget.measured import Measure, Measured
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.walk import inside_out, number_of_ops
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import as_written
from exla_opt.memory.peak import Memory
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import SIZELESS, AfterPass, Outcome, run_pipeline

# Predictions are rarely off by more; without a compiler, this margin is kept below the limit.
_MARGIN = 1.2
# Predictions are normally within this factor (docs/results.md): programs closer than this may be equally good.
_ACCURACY = 1.25
# How far above the limit a prediction may be for a compile, before and after the first one of its kind, which shows
# the error of the predictions.
_ABOVE = (_ACCURACY, 1.05)
# The same for library calls in loops, where XLA's copies are hard to predict.
_ACCURACY_WITH_CALLS = 1.5
# Only thresholds that differ by this factor show whether smaller ones gain anything.
_MUCH_LARGER = 4
# A tensor of this many slices that stays unsplit also stays unsplit with smaller slices.
_MANY_SLICES = 16
# A peak that falls by less does not count as falling.
_GAIN = 1.02
# Tensors smaller than this fraction of the largest in a loop's step do not count.
_PART = 4
# The only pass that looks at the limit.
RECOMPUTE = "recompute"
# The maximum number of compiles in a search, enforced by `Search._measured`. One is reserved for a program that should
# fit by the compiles so far, or for the one that should need the least of all.
MOST_COMPILES = 4
# More than any program needs: stands for a program that XLA refuses although it compiled others.
_NEVER = 2**62


# Predictions err alike on programs of one kind.
Kind = Literal["original", "recomputed", "split", "calls in loops", "nested tiles"]


class CannotCompile(Exception):
    """No compiler is available here, or it refuses the module; the message says why."""


@dataclass(frozen=True, slots=True)
class Split:
    """The outcome of the sizes alone, without recomputing: it guides the search, which so does not depend on the limit.

    peak: bytes, predicted. large: the bytes that no smaller sizes save unless they split more tensors: arguments,
    results, and the tensors far larger than a slice that are alive at the peak. places: the locations of the largest
    tensors of a loop's step at the peak; empty if the peak is in no loop.
    """

    peak: int
    large: int
    places: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Attempt:
    """The outcome of one pair of sizes.

    largest: the bytes of the largest temporary tensor. split: the outcome of the sizes alone. seconds: of a run,
    predicted. measured: the compiled peak, None until the compiler is asked. estimated: the seconds of a run, estimated
    from the compiled program; None if not known. note: what its compile had to leave out.
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    predicted: Memory
    largest: int
    split: Split
    seconds: float
    measured: int | None = None
    estimated: float | None = None
    note: str = ""

    @property
    def recomputes(self) -> bool:
        """Whether anything is recomputed for the limit."""
        return any(remark.pass_name == RECOMPUTE for remark in self.outcome.remarks)

    @property
    def peak(self) -> int:
        """The compiled bytes or, without a compile, the predicted ones with a margin."""
        return self.predicted_with(_MARGIN) if self.measured is None else self.measured

    def predicted_with(self, ratio: float) -> int:
        """The peak if temporary memory is `ratio` times the predicted; arguments and results are certain."""
        return self.predicted.peak + int((ratio - 1) * self.predicted.temp)


class Search:
    """The attempts so far, and the compiler's findings.

    has_calls: whether the module calls a library. ratios: compiled over predicted temporary memory of each
    program, by kind. refusal: why no compiler is available any more, "" while one is.
    compiles_left: how many compiles are left; an attempt not compiled by then does not count as fitting.
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
        self.ratios: defaultdict[Kind, list[float]] = defaultdict(list)
        self.refusal = ""
        self.compiles_left = compiles

    @property
    def room(self) -> int:
        """The bytes that the limit leaves after arguments and results."""
        unsplit = self.attempts[0].predicted
        return self.limit - unsplit.peak + unsplit.temp

    @property
    def aim(self) -> int:
        """The bytes to aim for in predictions; without a compiler, a margin for the temporary ones stays free."""
        return self.limit if self.measure is not None else self.limit - int(max(self.room, 0) * (1 - 1 / _MARGIN))

    def attempt(self, sizes: Options) -> Attempt:
        """Run the passes with these sizes, and predict the memory and time of the result."""
        found = self.predicted(self.module, self.shared, self.names, sizes)
        self.attempts.append(found)
        return found

    def predicted(self, start: ir.Module, before: Outcome, names: Sequence[str], sizes: Options) -> Attempt:
        """Run passes on a copy of a module, and predict the result. before: the outcome of the earlier passes.

        Tensors are recomputed only if the other passes leave the module above the limit.
        """
        module = copy_of(start)
        limit, machine = sizes.memory_limit, as_written(sizes.machine)
        at = names.index(RECOMPUTE) if RECOMPUTE in names and limit is not None else len(names)
        done = [before, self._run(module, names[:at], sizes)]
        plain = copy_of(module) if at < len(names) else None
        last = self._run(module, names[at + 1 :], sizes)
        timeline = read_timeline(module, machine)
        split = _split(timeline, sizes)
        if plain is not None and limit is not None and timeline.memory.peak > limit:
            ops = number_of_ops(plain)
            done.append(self._run(plain, names[at : at + 1], sizes))
            if done[-1].remarks or number_of_ops(plain) != ops:  # tensors that are only delayed make no remark
                module, last = plain, self._run(plain, names[at + 1 :], sizes)
                timeline = read_timeline(module, machine)
        done.append(last)
        remarks = tuple(remark for outcome in done for remark in outcome.remarks)
        outcome = Outcome(remarks, tuple(each for outcome in done for each in outcome.seconds))
        largest = max((tensor.bytes for tensor in timeline.tensors), default=0)
        return Attempt(module, outcome, sizes, timeline.memory, largest, split, timeline.seconds)

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
        above = _ABOVE[min(len(self.ratios[_kind(found)]), len(_ABOVE) - 1)]
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
        return next(reversed(self.ratios[_kind(found)]), 1.0)

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
            known = self.known[_digest(serialise(found.module, "bytecode"))] = Measured(_NEVER)
        if known is None:
            return
        found.measured, found.estimated, found.note = known.peak, known.seconds, known.note
        temp = found.measured - found.predicted.peak + found.predicted.temp
        if found.predicted.temp and found.measured < _NEVER:
            self.ratios[_kind(found)].append(temp / found.predicted.temp)

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
            unsplit.measured, unsplit.estimated, unsplit.note = found.peak, found.seconds, found.note
        return found is not None

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


def _kind(found: Attempt) -> Kind:
    if found.options.split_size is None:
        return "recomputed" if found.recomputes else "original"
    if found.options.nested_tiles:
        return "nested tiles"
    return "calls in loops" if found.options.calls_in_loops else "split"


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _split(timeline: Timeline, options: Options) -> Split:
    held = timeline.memory.peak - timeline.memory.temp
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    least = max(options.size_threshold, _MANY_SLICES * options.slice_bytes)
    large = held + sum(tensor.bytes for tensor in alive if tensor.bytes > least)
    return Split(timeline.memory.peak, large, _places_at_peak(timeline))


def _places_at_peak(timeline: Timeline) -> tuple[str, ...]:
    peak = timeline.peak
    if peak is None or not timeline.points[peak].depth:
        return ()
    first = last = peak
    while first and timeline.points[first - 1].depth:
        first -= 1
    while last + 1 < len(timeline.points) and timeline.points[last + 1].depth:
        last += 1
    alive = [tensor for tensor in timeline.alive_at(peak) if first <= tensor.first and tensor.last <= last]
    return tuple(sorted({tensor.location for tensor in alive if tensor.bytes * _PART >= alive[0].bytes}))
