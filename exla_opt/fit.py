"""One number: finds the sizes with which a module fits into a memory limit, by trying the pipeline.

The first candidate that fits is taken. For a GPU they are tried from the largest slices down, for large slices are few
trips. A CPU is fastest with slices that stay in its cache, so those come first, then smaller ones, then larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import Memory, predict
from exla_opt.memory.timeline import read_timeline
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
# Without this pass no size changes anything.
_SPLITTER = "tensor-splitter"
# Where nothing fits, so many of the first programs that are about as good as the best, and of the best, are compiled.
_COMPILED = 3
# Predictions are off by no more than this as a rule (docs/results.md): what is nearer to each other may be as good.
_ACCURACY = 1.25
# More than any tensor takes.
_NOTHING_IS_BIG = 2**62

Measure = Callable[[ir.Module], int]


@dataclass(frozen=True, slots=True)
class Fit:
    """The module that fits, or that needs the least memory of all that were tried.

    options: the sizes with which it was made. peak: its bytes, as the target's compiler plans them if `compiled`, else
    what is predicted and a margin. fits: whether that is within the limit. held_by: what holds the memory at the peak
    when it is not.
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    peak: int
    fits: bool
    compiled: bool = False
    held_by: str = ""


def fit(
    read: Callable[[], ir.Module],
    names: Sequence[str],
    options: Options,
    limit: int,
    measure: Measure | None = None,
    *,
    gpu: bool = False,
    verify_each: bool = True,
    after_pass: AfterPass | None = None,
    tried: Callable[[Options, int], None] | None = None,
) -> Fit:
    """Run the named passes with one pair of sizes after another until the module fits into `limit` bytes.

    read: makes the module anew for each attempt. limit: of arguments, results and temporary memory together, in bytes.
    measure: the peak bytes that a real compiler plans; the prediction is the judge without it. gpu: whether it is that
    of a GPU. verify_each, after_pass: as in `run_pipeline`, for every attempt. tried: is told of each attempt. Raises
    what `run_pipeline` raises.
    """
    options = replace(options, machine=GPU if gpu else options.machine)
    attempts: list[Fit] = []

    def attempt(sizes: Options) -> Fit:
        module = read()
        outcome = run_pipeline(module, names, sizes, verify_each=verify_each, after_pass=after_pass)
        memory = predict(module, options.machine)
        peak = memory.peak
        if measure is None:
            peak += int((_MARGIN - 1) * memory.temp)  # arguments and results are what they are
        elif peak <= _MARGIN * limit:
            peak = measure(module)
        if tried is not None:
            tried(sizes, peak)
        attempts.append(Fit(module, outcome, sizes, peak, peak <= limit, measure is not None))
        return attempts[-1]

    found = attempt(replace(options, size_threshold=_NOTHING_IS_BIG, split_size=None))
    if not found.fits and _SPLITTER in names:
        for sizes in _candidates(predict(found.module, options.machine), options, limit, gpu):
            found = attempt(sizes)
            if found.fits:
                break
    if found.fits:
        return found
    said = [remark for found in attempts for remark in found.outcome.remarks]
    if measure is not None:
        # What is told is what the compiler says, also of what was predicted to be too far off to be compiled.
        attempts = [replace(found, peak=measure(found.module)) for found in _nearest(attempts)]
    best = min(attempts, key=lambda found: found.peak)
    if best.peak <= limit:
        return replace(best, fits=True)
    return replace(best, held_by=_holder(best, names, said, limit))


def _nearest(attempts: Sequence[Fit]) -> list[Fit]:
    """Those that may need the least: of what is predicted to need about the same, the first, and the very least."""
    order = sorted(range(len(attempts)), key=lambda place: attempts[place].peak)
    lowest = attempts[order[0]].peak
    near = [place for place, found in enumerate(attempts) if found.peak <= _ACCURACY * lowest]
    return [attempts[place] for place in dict.fromkeys([*near[:_COMPILED], *order[:_COMPILED]])]


def _candidates(unsplit: Memory, options: Options, limit: int, gpu: bool) -> Iterator[Options]:
    """One slice size after another, those that may fit into what the limit leaves first.

    unsplit: what the program needs without any split. It alone gives the sizes, to which a limit only adds some: so
    the smallest limit that is told is met when it is given.
    """
    room = limit - (unsplit.peak - unsplit.temp)
    sizes = _falling(unsplit.temp // 2, room) if gpu else _cached_first(unsplit.temp, room)
    wanted = room // 2 if gpu else room
    for slices in sorted(sizes, key=lambda size: size > wanted):
        # Where large slices are the aim, what is not larger than two of them is left alone if that will do.
        for threshold in (2 * slices, slices) if gpu else (slices,):
            yield replace(options, size_threshold=threshold, split_size=slices)


def _falling(largest: int, room: int = 0) -> list[int]:
    """Slice sizes from the largest down, each about two thirds to three quarters of the one before; in bytes.

    room: where this is smaller than the largest, they go on until they are small beside it.
    """
    last = min(largest, room) if room > 0 else largest
    sizes: list[int] = []
    while largest >= max(_SMALLEST_SLICE, last >> _HALVINGS):
        sizes += [largest, 3 * largest // 4]
        largest //= 2
    return [size for size in sizes if size >= _SMALLEST_SLICE]


def _cached_first(largest: int, room: int) -> list[int]:
    """Slice sizes for a CPU, in bytes: what a cache holds, halved again and again; larger ones as a last resort."""
    smaller = [_CACHED_SLICE >> times for times in range(_HALVINGS)]
    larger = [_CACHED_SLICE << times for times in range(1, _HALVINGS)]
    sizes = [min(size, largest) for size in smaller] + [size for size in larger if size <= min(largest, room) // 2]
    return [size for size in dict.fromkeys(sizes) if size >= _SMALLEST_SLICE]


def _holder(found: Fit, names: Sequence[str], remarks: Sequence[Remark], limit: int) -> str:
    """What takes most at the peak of what was found: bytes and place, and why it was not split where that is known."""
    timeline = read_timeline(found.module, found.options.machine)
    held = timeline.memory.peak - timeline.memory.temp
    alive = [] if timeline.peak is None else timeline.alive_at(timeline.peak)
    if not alive or held > limit:
        return f"its arguments and results, which alone take {format_size(held)}"
    assert timeline.peak is not None
    point, tensor = timeline.points[timeline.peak], alive[0]
    scratch = point.bytes - sum(each.bytes for each in alive)
    if scratch > tensor.bytes:
        return f"{format_size(scratch)} that {point.op} at {point.location} needs while it runs"
    reasons = [
        remark.text
        for remark in remarks
        if remark.kind is Kind.MISSED and (remark.location, remark.tensor) == (tensor.location, tensor.type)
    ]
    if _SPLITTER not in names:
        reasons = [f"not split: {_SPLITTER} is not among the passes"]
    why = f": {reasons[0]}" if reasons else ""
    beside = f"its arguments and results ({format_size(held)}) and " if held > timeline.memory.temp else ""
    return f"{beside}{tensor.type} ({format_size(tensor.bytes)}) at {tensor.location}{why}"
