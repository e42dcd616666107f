"""Attempts to fit a module into a memory limit: what the pipeline makes with one pair of sizes, and what it needs.

A prediction leaves out those that are far from the limit; whether one of the others fits, the compiler says. Without a
compiler, what is predicted and a margin has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.peak import Memory
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import SIZELESS, AfterPass, Outcome, run_pipeline

# A prediction is seldom wrong by more: without a compiler that says so, this much of the limit is kept free.
_MARGIN = 1.2
# Where nothing fits, so many of the first programs that are about as good as the best, of the best, and of those that
# should need less than these turned out to need, are compiled.
_COMPILED = 3
# Predictions are off by no more than this as a rule (docs/results.md): what is nearer to each other may be as good.
_ACCURACY = 1.25
# But for what XLA copies for a library's calls in loops.
_ACCURACY_WITH_CALLS = 1.5
# What is not split although it is as large as so many slices is not split in smaller ones, either.
_MANY_SLICES = 16
# Where nothing fits, so much more memory is as good.
_ABOUT = 1.05
# More than any program needs, of one that XLA refuses although it took others.
_NEVER = 2**62

# The peak bytes that a compiler plans for a module, which is given as bytecode. Raises CannotCompile.
Measure = Callable[[bytes], int]


class CannotCompile(Exception):
    """There is no compiler here, or it refuses the module; the text says why."""


@dataclass(slots=True)
class Attempt:
    """What one pair of sizes gives.

    large: the bytes that no smaller sizes save as long as they split nothing more: arguments, results, and the tensors
    far larger than a slice that are alive at the peak. measured: the peak by the compiler, None as long as it has not
    been asked.
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    predicted: Memory
    large: int
    measured: int | None = None

    @property
    def peak(self) -> int:
        """The compiler's bytes or, with a margin, what is predicted."""
        return self.predicted_with(_MARGIN) if self.measured is None else self.measured

    def predicted_with(self, ratio: float) -> int:
        """The peak if temporary memory is `ratio` times as large as predicted; arguments and results are sure."""
        return self.predicted.peak + int((ratio - 1) * self.predicted.temp)


class Search:
    """The attempts so far, and what the compiler says of them.

    ratio: how many times the predicted temporary memory the compiler planned for the last split program. refusal: why
    there is no compiler to ask any more, "" while there is.
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
    ) -> None:
        shared = next((number for number, name in enumerate(names) if name not in SIZELESS), len(names))
        self.limit, self.measure = limit, measure
        self.verify_each, self.after_pass = verify_each, after_pass
        self.shared = run_pipeline(module, names[:shared], options, verify_each=verify_each, after_pass=after_pass)
        self.names, self.module = names[shared:], module
        self.attempts: list[Attempt] = []
        self.known: dict[bytes, int] = {}
        self.ratio = 1.0
        self.refusal = ""

    def attempt(self, sizes: Options) -> Attempt:
        """Run the passes with these sizes, and compile what comes near the limit."""
        module = copy_of(self.module)
        rest = run_pipeline(module, self.names, sizes, verify_each=self.verify_each, after_pass=self.after_pass)
        outcome = Outcome(self.shared.remarks + rest.remarks, self.shared.seconds + rest.seconds)
        timeline = read_timeline(module, sizes.machine)
        found = Attempt(module, outcome, sizes, timeline.memory, _large(timeline, sizes))
        self.attempts.append(found)
        if found.predicted_with(self.ratio) <= _ACCURACY * self.limit or (
            sizes.calls_in_loops and found.predicted.peak <= _ACCURACY_WITH_CALLS * self.limit
        ):
            self.compile(found)
        return found

    def structures(self, candidates: Iterable[Options]) -> Iterator[Options]:
        """Each of the sizes, and once more for the other place of a library's calls where the module has any."""
        has_calls = bool(inside_out(self.module, "stablehlo.custom_call"))
        for sizes in candidates:
            yield sizes
            if has_calls and self.attempts[-1].options == sizes:
                yield replace(sizes, calls_in_loops=True)

    def is_stuck_above(self, sizes: Options) -> bool:
        """Whether the next larger threshold gained nothing, for what it leaves unsplit is too much alone.

        Where a library's calls stand elsewhere, another program is split: that one says nothing of these sizes.
        """
        alike = [found for found in self.attempts if found.options.calls_in_loops == sizes.calls_in_loops]
        above = [found for found in alike if found.options.size_threshold > sizes.size_threshold]
        if len(above) < 2:
            return False
        before, last = sorted(above, key=lambda found: -found.options.size_threshold)[-2:]
        return last.large > _ACCURACY * self.limit and last.predicted.peak >= before.predicted.peak

    def fits(self, found: Attempt) -> bool:
        """Whether it is within the limit, as the compiler says where there is one."""
        return found.peak <= self.limit and (found.measured is not None or self.measure is None)

    def compile(self, found: Attempt) -> None:
        """Ask the compiler, if there is one. It is given up if it refuses the first program that it gets."""
        if self.measure is None or found.measured is not None:
            return
        data = serialise(found.module, "bytecode")
        digest = sha256(data).digest()  # different sizes may give the same program
        try:
            if digest not in self.known:
                self.known[digest] = self.measure(data)
        except CannotCompile as error:
            if not self.known:
                self.measure, self.refusal = None, str(error)
                return
            self.known[digest] = _NEVER
        found.measured = self.known[digest]
        temp = found.measured - found.predicted.peak + found.predicted.temp
        if found.options.split_size is not None and found.predicted.temp and found.measured < _NEVER:
            self.ratio = temp / found.predicted.temp

    def least(self) -> Attempt:
        """The attempt with about the lowest peak, by the compiler where there is one.

        Where it says more than predicted, the others that should need less than that follow, larger slices first: they
        split fewer tensors, while smaller ones give the same loops with shorter tiles.
        """
        for found in _nearest(self.attempts):
            self.compile(found)
        if self.measure is None:
            return _largest_slices(self.attempts)
        for _ in range(_COMPILED):
            asked = {found.predicted.peak for found in self.attempts if found.measured is not None}
            best = self._least_measured()
            others = [found for found in self.attempts if found.predicted.peak not in asked]
            others = [found for found in others if found.predicted.peak < best.peak]
            if not others:
                break
            self.compile(max(others, key=lambda found: found.options.slice_bytes))
        return _largest_slices([found for found in self.attempts if found.measured is not None])

    def _least_measured(self) -> Attempt:
        return min((found for found in self.attempts if found.measured is not None), key=lambda found: found.peak)


def _large(timeline: Timeline, options: Options) -> int:
    held = timeline.memory.peak - timeline.memory.temp
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    least = max(options.size_threshold, _MANY_SLICES * options.slice_bytes)
    return held + sum(tensor.bytes for tensor in alive if tensor.bytes > least)


def _largest_slices(attempts: Sequence[Attempt]) -> Attempt:
    """Of those that need about the least, the one with the largest slices: the last few bytes can take all the time."""
    most = _ABOUT * min(found.peak for found in attempts)
    return max((found for found in attempts if found.peak <= most), key=lambda found: found.options.slice_bytes)


def _nearest(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that may need the least: of what is predicted to need about the same, the first, and the very least.

    Of those that are predicted alike to the byte, the first stands for all.
    """
    first = {found.predicted.peak: found for found in reversed(attempts)}
    lowest = min(first)
    near = [peak for peak in dict.fromkeys(found.predicted.peak for found in attempts) if peak <= _ACCURACY * lowest]
    return [first[peak] for peak in dict.fromkeys([*near[:_COMPILED], *sorted(first)[:_COMPILED]])]
