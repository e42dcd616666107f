"""One number: finds the sizes with which a module fits into a memory limit, by trying the pipeline.

Of the ways that fit, the fastest is taken. A small module is tried in all ways; a large one, for which each takes
seconds, until one fits that is about as fast as without a split: they are ordered by their usual speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.budget.attempts import RECOMPUTE, Attempt, Search
from exla_opt.budget.bound import Bound, lower_bound
from exla_opt.budget.choose import fastest, fastest_that_fits, is_clearly_faster, much_faster, near_miss, smallest
from exla_opt.budget.joined import JOINS, with_joined_trips
from exla_opt.budget.measured import Measure
from exla_opt.budget.progress import log_attempts
from exla_opt.budget.refine import try_refined
from exla_opt.budget.ways import coarse_first, ways
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.timeline import read_larger_timeline
from exla_opt.options import Options
from exla_opt.pipeline import AfterPass, Outcome
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

# Without this pass no size changes anything.
_SPLITTER = "tensor-splitter"
# What a remark with this code is about is not what holds the memory, though both are of one type and line.
_NEVER_IN_MEMORY = "EX101"
# More than any tensor takes.
_NOTHING_IS_BIG = 2**62
# A module of so many ops is tried in all ways, a larger one until it fits at about the speed of the unsplit program,
# in the fewer ways the more ops it has: each attempt takes a time linear in them.
_SMALL, _OPS_OF_ALL = 150, 6_000
_ABOUT_AS_FAST = 1.25
# Above so many ops what fits as it came is not tried in slices. So many ways say whether slices are faster.
_VERY_LARGE, _FIRST_WAYS = 800, 2
# But in no fewer.
_LEAST_WAYS = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """What a program needs. peak: bytes. compiled: whether a compiler says so, else predicted. seconds: predicted."""

    peak: int
    compiled: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The module that fits, or the fastest of those that need about the least memory of all that were tried.

    options: the sizes with which it was made. peak: its bytes, as a compiler plans them if `compiled`, else what is
    predicted and a margin. seconds: what it takes, predicted. before: the figures of the module without any split.
    fits: whether the peak is within the limit. held_by: what holds the memory at the peak when it is not.
    bound: what every program with these results needs, where the peak is not within the limit.
    fitted: whether it was within the limit as it came, and what was taken should be far faster.
    smallest: the figures of the program that needs the least, where that is not met and not what was taken.
    faster: the figures of a program that takes less than half the time and more memory, if there is one.
    why_predicted: why it was not compiled although it should have been. unknown: the ops whose own memory a prediction
    leaves out, in order; with any, the peak is "at least".
    """

    module: ir.Module
    outcome: Outcome
    options: Options
    peak: int
    seconds: float
    before: Figures
    fits: bool
    compiled: bool = False
    held_by: str = ""
    bound: Bound | None = None
    fitted: bool = False
    smallest: Figures | None = None
    faster: Figures | None = None
    why_predicted: str = ""
    unknown: tuple[str, ...] = ()


def fit(
    module: ir.Module,
    names: Sequence[str],
    options: Options,
    limit: int,
    measure: Measure | None = None,
    *,
    verify_each: bool = True,
    after_pass: AfterPass | None = None,
    tried: Callable[[Options, int], None] | None = None,
) -> Fit:
    """Run the named passes with one pair of sizes after another, and take the fastest that fits into `limit` bytes.

    The sizes suit the machine of the options. What fits without any split goes out as it came.

    module: as it was read; the passes that come before all sizes change it. limit: of arguments, results and temporary
    memory together, in bytes. measure: a compiler, which has the last word; the prediction has it where there is none.
    verify_each, after_pass: as in `run_pipeline`, for every attempt. tried: is called with the sizes and the bytes of
    each attempt. Raises what `run_pipeline` raises.
    """
    search = Search(module, names, options, limit, measure, verify_each, after_pass)
    tried = tried or (lambda sizes, peak: None)
    unsplit = search.attempt(unsplit_options(options))
    tried(unsplit.options, unsplit.peak)
    chosen = unsplit if search.fits(unsplit) else None
    options = replace(options, memory_limit=search.aim)
    recomputes = chosen is None and RECOMPUTE in names
    if recomputes and unsplit.largest <= search.room:  # a tensor is not cut by that
        try_recomputing(search, tried)
        recomputes = False
    if chosen is not None and _SPLITTER in names and may_be_faster(search):
        for found in try_faster(search, ways(unsplit.predicted, unsplit.largest, options)):
            tried(found.options, found.peak)
        faster_ones = [found for found in search.attempts if is_clearly_faster(found, unsplit)]
        chosen = next((found for found in fastest(faster_ones) if search.fits(found)), chosen)
    if chosen is None and _SPLITTER in names:
        is_quick = options.machine.kind == "cpu" and _ops_of(search.module) <= _SMALL
        for found in try_ways(search, ways(unsplit.predicted, unsplit.largest, options), until_one_fits=True):
            tried(found.options, found.peak)
        if is_quick or fastest_that_fits(search) is None:
            for found in try_refined(search, until_one_fits=not is_quick):
                tried(found.options, found.peak)
        # It cannot fit, but where nothing does it may need the least: no larger limit is to reach less.
        held = unsplit.predicted.peak - unsplit.predicted.temp
        if recomputes and held + unsplit.largest < smallest(search).peak and fastest_that_fits(search) is None:
            try_recomputing(search, tried)
    found = chosen or fastest_that_fits(search) or near_miss(search)
    fits = found.peak <= limit
    if fits and found is not chosen and JOINS in names:
        found = with_joined_trips(search, found, tried)
    log_attempts(search, found)
    faster, least = much_faster(found, search.attempts), smallest(search)
    said = [remark for attempt in search.attempts for remark in attempt.outcome.remarks]
    return Fit(
        module=found.module,
        outcome=found.outcome,
        options=found.options,
        peak=found.peak,
        seconds=found.seconds,
        before=Figures(unsplit.measured or unsplit.predicted.peak, unsplit.measured is not None, unsplit.seconds),
        fits=fits,
        compiled=found.measured is not None,
        held_by="" if fits else _holder(found, names, said, limit),
        bound=None if fits else _bound(search, found, options),
        fitted=found is chosen and found is not unsplit,
        smallest=None if fits or least.peak >= found.peak else _figures(least),
        faster=None if faster is None else _figures(faster),
        why_predicted=search.refusal,
        unknown=() if found.measured is not None else tuple(sorted(found.predicted.unknown)),
    )


def _figures(found: Attempt) -> Figures:
    return Figures(found.peak, found.measured is not None, found.seconds)


def try_recomputing(search: Search, tried: Callable[[Options, int], None]) -> None:
    """The program without a split, and with what is recomputed for the limit, if anything is."""
    found = search.attempt(replace(search.attempts[0].options, memory_limit=search.aim))
    if any(remark.pass_name == RECOMPUTE for remark in found.outcome.remarks):
        tried(found.options, found.peak)
    else:
        search.attempts.remove(found)  # as it came


def may_be_faster(search: Search) -> bool:
    """Whether slices may be faster than a program that fits as it came: they stay in a CPU's cache.

    For a GPU they are no faster; of a long module each attempt takes seconds.
    """
    return search.attempts[0].options.machine.kind == "cpu" and _ops_of(search.module) <= _VERY_LARGE


def try_faster(search: Search, sizes: Sequence[Options]) -> Iterator[Attempt]:
    """The first ways, and the others where one of these is clearly faster than the program as it came."""
    first = list(try_ways(search, sizes[:_FIRST_WAYS]))
    yield from first
    if any(is_clearly_faster(found, search.attempts[0]) for found in first):
        yield from try_ways(search, sizes[_FIRST_WAYS:])


def _bound(search: Search, found: Attempt, options: Options) -> Bound:
    """The lower bound, or what was reached where some pass does without an op that the bound takes for granted."""
    bound = lower_bound(search.module, search.attempts[0].predicted, options.op_rules)
    return bound if bound.bytes <= found.peak else Bound(found.peak, bound.reason)


def unsplit_options(options: Options) -> Options:
    """The options with which nothing is split or recomputed."""
    return replace(options, size_threshold=_NOTHING_IS_BIG, split_size=None, memory_limit=None)


def _ops_of(module: ir.Module) -> int:
    return sum(1 for _ in walk_functions(module.operation))


def try_ways(search: Search, sizes: Sequence[Options], *, until_one_fits: bool = False) -> Iterator[Attempt]:
    """One attempt after another, and each once more for the other place of a library's calls if there are any.

    until_one_fits: whether that ends it for a large module if it is fast, and for a GPU, where the order is that of the
    seconds; slices for which the limit leaves no room come last. For a CPU, a module so large that not all ways are
    tried begins with the coarse ones, and ends with the first that fits: of these others have seldom been faster.
    Slices smaller than some that seem to fit wait until these turn out not to: they take longest to plan and to run.
    """
    ops = _ops_of(search.module)
    first = search.attempts[0]
    is_ordered = first.options.machine.kind != "cpu"
    most = max(_LEAST_WAYS, _OPS_OF_ALL // ops)
    is_large = until_one_fits and not is_ordered and len(sizes) > most
    if until_one_fits:
        sizes = sorted(sizes, key=lambda way: way.slice_bytes > search.room)
    if is_large:
        sizes = coarse_first(sizes, search.room, most - 1)
    later: list[Options] = []
    for way in sizes[:most]:
        if until_one_fits and not is_ordered and ops > _SMALL and _has_coarser_that_seems_to_fit(search, way):
            later.append(way)
            continue
        for found in _placed(search, way):
            yield found
            is_fast = is_ordered or is_large or (ops > _SMALL and found.seconds <= _ABOUT_AS_FAST * first.seconds)
            if until_one_fits and is_fast and search.fits(found):
                return
    for way in later:
        if fastest_that_fits(search) is None or not _has_coarser_that_seems_to_fit(search, way):
            yield from _placed(search, way)


def _placed(search: Search, way: Options) -> Iterator[Attempt]:
    """An attempt for each place of a library's calls, unless a larger threshold shows that it gains nothing."""
    for calls_in_loops in (False, True) if search.has_calls else (False,):
        placed = replace(way, calls_in_loops=calls_in_loops)
        if not search.is_stuck_above(placed):
            yield search.attempt(placed)


def _has_coarser_that_seems_to_fit(search: Search, way: Options) -> bool:
    """Whether slices larger than those of a way are within the limit by what is known: smaller ones are slower.

    Not where that takes recomputing, or a library's calls in loops, for which smaller slices may be faster.
    """
    return any(
        found.options.split_size is not None
        and found.options.slice_bytes > way.slice_bytes
        and not found.options.calls_in_loops
        and not found.recomputes
        and search.seems_to_fit(found)
        for found in search.attempts
    )


def _holder(found: Attempt, names: Sequence[str], remarks: Sequence[Remark], limit: int) -> str:
    """What takes most at the peak of what was found: bytes and place, and why it was not split where that is known."""
    timeline = read_larger_timeline(found.module, found.options.machine)
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
        if remark.kind is Kind.MISSED
        and remark.code != _NEVER_IN_MEMORY
        and (remark.location, remark.tensor) == (tensor.location, tensor.copy_of or tensor.type)
    ]
    if tensor.copy_of is not None and tensor.op == "stablehlo.while":
        reasons = ["made before a loop that reads slices of it"]
    if _SPLITTER not in names:
        reasons = [f"not split: {_SPLITTER} is not among the passes"]
    why = f": {reasons[0]}" if reasons else ""
    listed = []
    if held > tensor.bytes / 2:
        listed.append(f"its arguments and results ({format_size(held)})")
    rest = timeline.memory.peak - tensor.bytes - (held if listed else 0)
    if rest > timeline.memory.peak / 4:
        listed.append(f"{format_size(rest)} of tensors no larger")
    listed.append(f"{tensor.name} ({format_size(tensor.bytes)}) at {tensor.location}{why}")
    return f"{', '.join(listed[:-1])}{' and ' if listed[1:] else ''}{listed[-1]}"
