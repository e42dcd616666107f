"""The search for the sizes with which a module fits into a memory limit, by trying the pipeline.

The fastest attempt that fits is taken. A small module is tried with smaller slices as long as these get faster, and
with larger ones until they are slower; a large one, for which each attempt takes seconds, with what is planned soonest
first, until one fits that is about as fast as the unsplit program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.budget.attempt import RECOMPUTE, SPLITTER, Attempt
from exla_opt.budget.bound import Bound, lower_bound
from exla_opt.budget.choose import (
    explained,
    fastest,
    fastest_that_fits,
    is_about_as_fast,
    is_clearly_faster,
    much_faster,
    near_miss,
    smallest,
)
from exla_opt.budget.holder import holder_of
from exla_opt.budget.joined import JOINS, with_joined_trips
from exla_opt.budget.measured import Measure
from exla_opt.budget.order import cut_again, is_small_module, may_be_faster, try_faster, try_ways
from exla_opt.budget.progress import log_attempts
from exla_opt.budget.search import Search
from exla_opt.budget.ways import ways
from exla_opt.options import Options
from exla_opt.pipeline import AfterPass, Outcome
from exla_opt.remarks import Kind, Remark

# Larger than any tensor.
_NOTHING_IS_BIG = 2**62


@dataclass(frozen=True, slots=True)
class Figures:
    """A program's cost. peak: bytes. compiled: whether a compiler planned them, else predicted. seconds: predicted."""

    peak: int
    compiled: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome of a search: the module that fits or, if none does, the one of the least cost (`near_miss`).

    options: with its sizes. peak: its bytes, as planned by a compiler if `compiled`, else predicted with a margin.
    seconds: of a run, predicted. before: the figures of the module without any split. fits: whether the peak is within
    the limit. held_by: the tensor that holds the most at the peak, if it does not fit. bound: the least that every
    program with these results needs, if it does not fit. fitted: whether the unsplit module fits, and the chosen one
    should be far faster. smallest: the figures of the program that needs the least, if nothing fits and another was
    chosen. faster: the figures of a program with more memory and less than half the time, if there is one.
    why_predicted: why it was not compiled although it should have been. unknown: the ops whose own memory the
    prediction leaves out, sorted; if there are any, the peak is a lower bound. note: what its compile had to leave out.
    ended_early: whether sizes were left out because the others took too long to plan.
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
    note: str = ""
    ended_early: bool = False


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
    """Run the named passes with one pair of sizes after another; take the fastest attempt that fits in `limit` bytes.

    The sizes suit the machine of the options. A module that fits is split only if slices should be clearly faster.

    module: as read; the passes before all sizes change it. limit: of arguments, results and temporary memory together,
    in bytes. measure: a compiler, which decides; without one, the prediction does. verify_each, after_pass: as in
    `run_pipeline`, for every attempt. tried: called with the sizes and the bytes of each attempt. Raises what
    `run_pipeline` raises.
    """
    search = Search(module, names, options, limit, measure, verify_each, after_pass)
    tried = tried or (lambda sizes, peak: None)
    unsplit = search.attempt(unsplit_options(options))
    tried(unsplit.options, unsplit.peak)
    chosen = unsplit if search.fits(unsplit) else None
    options = replace(options, memory_limit=search.aim)
    sizes = ways(unsplit.predicted, unsplit.largest, options)
    recomputes = chosen is None and RECOMPUTE in names
    is_small = is_small_module(search)
    needs_no_split = recomputes and unsplit.largest <= search.room
    # In a large module this takes as long as the slices to plan, and rarely fits where they do not.
    recomputes_last = needs_no_split and not is_small and SPLITTER in names
    if needs_no_split and not recomputes_last:
        try_recomputing(search, tried)
        recomputes = False
    if chosen is not None and SPLITTER in names and may_be_faster(search):
        for found in search.within_effort(try_faster(search, sizes)):
            tried(found.options, found.peak)
        faster_ones = [found for found in search.attempts if is_clearly_faster(found, unsplit)]
        chosen = next((found for found in fastest(faster_ones) if search.fits(found)), chosen)
    if chosen is None and SPLITTER in names:
        search.compiles_left -= recomputes_last  # one is kept for that
        for found in search.within_effort(try_ways(search, sizes, until_one_fits=True)):
            tried(found.options, found.peak)
        is_fast_enough = not recomputes_last or fits_about_as_fast(search)
        search.compiles_left += recomputes_last
        if not is_fast_enough:
            try_recomputing(search, tried)
            recomputes = False
        for found in search.within_effort(cut_again(search, sizes)):
            tried(found.options, found.peak)
        # It cannot fit, but may need the least if nothing does: no larger limit should end up with less memory.
        held = unsplit.predicted.peak - unsplit.predicted.temp
        if recomputes and held + unsplit.largest < smallest(search).peak and fastest_that_fits(search) is None:
            try_recomputing(search, tried)
    found = chosen or fastest_that_fits(search) or near_miss(search)
    fits = found.peak <= limit
    if not fits and found is unsplit:  # a program that is refused says why
        found = next((each for each in fastest(search.attempts) if each.is_refused and each is not unsplit), unsplit)
    if fits and found is not chosen and JOINS in names:
        found = with_joined_trips(search, found, tried)
    log_attempts(search, found)
    faster, least = much_faster(found, search.attempts), smallest(search)
    said = [remark for attempt in search.attempts for remark in attempt.outcome.remarks]
    return Fit(
        module=found.module,
        outcome=found.outcome if fits else explained(search, found),
        options=found.options,
        peak=found.peak,
        seconds=found.seconds,
        before=Figures(unsplit.measured or unsplit.predicted.peak, unsplit.measured is not None, unsplit.seconds),
        fits=fits,
        compiled=found.measured is not None,
        held_by="" if fits else holder_of(found, names, said, limit),
        bound=None if fits else _bound(search, found, options),
        fitted=found is chosen and found is not unsplit,
        smallest=None if fits or least.peak >= found.peak else _figures(least),
        faster=None if faster is None else _figures(faster),
        why_predicted=search.refusal,
        unknown=() if found.measured is not None else tuple(sorted(found.predicted.unknown)),
        note=found.note,
        ended_early=search.ended_early,
    )


def _figures(found: Attempt) -> Figures:
    return Figures(found.peak, found.measured is not None, found.seconds)


def try_recomputing(search: Search, tried: Callable[[Options, int], None]) -> None:
    """Try the unsplit program with tensors recomputed for the limit, if there are any, unless an attempt was that."""
    unsplit = search.attempts[0]
    limited = [each for each in search.attempts if each.options.memory_limit == search.aim]
    if any(_changes(each) == _changes(unsplit) and each.split.peak == unsplit.split.peak for each in limited):
        return
    found = search.attempt(replace(unsplit.options, memory_limit=search.aim))
    if any(remark.pass_name == RECOMPUTE for remark in found.outcome.remarks):
        tried(found.options, found.peak)
    else:
        search.attempts.remove(found)  # it equals the original


def _changes(found: Attempt) -> set[Remark]:
    """What the passes changed, except for what is recomputed."""
    return {each for each in found.outcome.remarks if each.kind is Kind.PASSED and each.pass_name != RECOMPUTE}


def fits_about_as_fast(search: Search) -> bool:
    """Whether a program fits that takes about the time of the original."""
    found = fastest_that_fits(search)
    return found is not None and is_about_as_fast(found, search.attempts[0])


def _bound(search: Search, found: Attempt, options: Options) -> Bound:
    """The lower bound, or the peak that was reached, if a pass avoids an op that the bound counts."""
    bound = lower_bound(search.module, search.attempts[0].predicted, options.op_rules)
    return bound if bound.bytes <= found.peak else Bound(found.peak, bound.reason)


def unsplit_options(options: Options) -> Options:
    """The options that split and recompute nothing."""
    return replace(options, size_threshold=_NOTHING_IS_BIG, split_size=None, memory_limit=None)
