"""One number: finds the sizes with which a module fits into a memory limit, by trying the pipeline.

The first candidate that fits is taken. For a GPU they are tried from the largest slices down, for large slices are few
trips. A CPU is fastest with slices that stay in its cache, so those come first, then smaller ones, then larger ones.
A series of attempts ends early when the peak does not fall any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from jaxlib.mlir import ir

from exla_opt.analysis.graph import Types
from exla_opt.analysis.peak import Prediction, predict
from exla_opt.ir.locations import describe
from exla_opt.ir.values import maker
from exla_opt.options import Options
from exla_opt.pipeline import AfterPass, Outcome, run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

# Slices below this are not worth a loop's trip.
_SMALLEST_SLICE = 2**14
# How often the slices are halved at most; the real limit is nearly always met within a few.
_HALVINGS = 12
# Slices of so many bytes, a few of which are alive at once, run from a CPU's cache (docs/results.md, "Speed").
_CACHED_SLICE = 4 * 10**6
# A prediction is seldom wrong by more: without a compiler that says so, this much of the limit is kept free.
_MARGIN = 1.2
# After so many attempts in a row that do not lower the peak to this part of the lowest, others are tried.
_PATIENCE = 4
_GAIN = 0.99
# Where nothing fits, so many of the programs with the largest slices, and of those with the lowest peak, are compiled.
_COMPILED = 2
# More than any tensor takes.
_NOTHING_IS_BIG = 2**62

Measure = Callable[[ir.Module], int]


@dataclass(frozen=True, slots=True)
class Fit:
    """The module that fits, or that needs the least memory of all that were tried.

    options: the sizes with which it was made. peak: its bytes, as the target's compiler plans them where there is one,
    else what is predicted and a margin. fits: whether that is within the limit. held_by: what holds the memory at the
    peak when it is not.
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    peak: int
    fits: bool
    held_by: str = ""


def fit(
    read: Callable[[], ir.Module],
    names: Sequence[str],
    options: Options,
    limit: int,
    measure: Measure | None = None,
    *,
    gpu: bool = False,
    after_pass: AfterPass | None = None,
    tried: Callable[[Options, int], None] | None = None,
) -> Fit:
    """Run the named passes with one pair of sizes after another until the module fits into `limit` bytes.

    read: makes the module anew for each attempt. limit: of arguments, results and temporary memory together, in bytes.
    measure: the peak bytes that a real compiler plans; the prediction is the judge without it. gpu: whether it is that
    of a GPU. tried: is told of each attempt. Raises what `run_pipeline` raises.
    """
    attempts: list[tuple[Fit, Prediction]] = []

    def attempt(sizes: Options) -> Fit:
        module = read()
        outcome = run_pipeline(module, names, sizes, after_pass=after_pass)
        prediction = predict(module, gpu)
        peak = prediction.memory.peak
        if measure is None:
            peak = int(peak * _MARGIN)
        elif peak <= _MARGIN * limit:
            peak = measure(module)
        if tried is not None:
            tried(sizes, peak)
        found = Fit(module, outcome, sizes, peak, peak <= limit)
        attempts.append((found, prediction))
        return found

    for series in _candidates(read(), options, limit, gpu):
        lowest, in_vain = inf, 0
        for sizes in series:
            found = attempt(sizes)
            if found.fits:
                return found
            in_vain = 0 if found.peak < _GAIN * lowest else in_vain + 1
            lowest = min(lowest, found.peak)
            if in_vain == _PATIENCE:
                break
    if measure is not None:
        # What is told is what the compiler says, also of what was predicted to be too far off to be compiled.
        attempts = [(replace(found, peak=measure(found.module)), alive) for found, alive in _nearest(attempts)]
    attempts.sort(key=lambda attempt: attempt[0].peak)
    best, alive = attempts[0]
    said = [remark for found, _ in attempts for remark in found.outcome.remarks]
    return replace(best, fits=best.peak <= limit, held_by=_holder(alive, said, limit))


def _nearest(attempts: Sequence[tuple[Fit, Prediction]]) -> list[tuple[Fit, Prediction]]:
    """Those that may need the least: of what is predicted to need about the same, the first, and the very least."""
    order = sorted(range(len(attempts)), key=lambda place: attempts[place][0].peak)
    lowest = attempts[order[0]][0].peak
    near = [place for place, (found, _) in enumerate(attempts) if found.peak <= _MARGIN * lowest]
    return [attempts[place] for place in dict.fromkeys([*near[:_COMPILED], *order[:_COMPILED]])]


def _candidates(module: ir.Module, options: Options, limit: int, gpu: bool) -> Iterator[list[Options]]:
    """Series of sizes, each to be tried in its order: nothing split at all, then slices of falling or rising sizes."""
    memory = predict(module, gpu).memory
    room = limit - (memory.peak - memory.temp)
    yield [replace(options, size_threshold=_NOTHING_IS_BIG, split_size=None)]
    largest = room if room > 0 else memory.temp
    if gpu:
        # Large slices are the aim, and what is not larger than two of them is left alone if that will do.
        pairs = [(size, threshold) for size in _falling(largest // 2) for threshold in (2 * size, size)]
        yield [replace(options, size_threshold=threshold, split_size=size) for size, threshold in pairs]
        return
    cached = min(_CACHED_SLICE, largest)
    larger = [size for size in reversed(_falling(largest // 2)) if size > cached]
    for sizes in (_falling(cached), larger):
        yield [replace(options, size_threshold=size, split_size=size) for size in sizes]


def _falling(largest: int) -> list[int]:
    """Slice sizes from the largest down, each about two thirds to three quarters of the one before; in bytes."""
    sizes = [size >> times for times in range(_HALVINGS) for size in (largest, 3 * largest // 4)]
    return [size for size in sizes if size >= _SMALLEST_SLICE]


def _holder(prediction: Prediction, remarks: Sequence[Remark], limit: int) -> str:
    """The largest tensor alive at the peak: its type, bytes and place, and why it was not split where that is known."""
    memory = prediction.memory
    if not prediction.alive or memory.peak - memory.temp > limit:
        return f"its arguments and results, which alone take {format_size(memory.peak - memory.temp)}"
    value = prediction.alive[0]
    kind = Types().of(value)
    op = maker(value)
    place = "a function's argument" if op is None else describe(op)
    missed = [remark for remark in remarks if remark.kind is Kind.MISSED]
    reasons = [remark.text for remark in missed if remark.location == place and remark.tensor == str(kind)]
    why = f": {reasons[0]}" if reasons else ""
    return f"{kind} ({format_size(kind.bytes)}) at {place}{why}"
