"""The order in which ways are tried, by the number of a module's ops and by what was found so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import fastest_that_fits, is_about_as_fast, is_clearly_faster, steps
from exla_opt.budget.hopeless import (
    gains_by_calls,
    is_before_larger,
    is_hopeless,
    is_small,
    with_the_smallest_first,
)
from exla_opt.budget.larger import try_larger
from exla_opt.budget.needless import is_needless
from exla_opt.budget.nested import try_nested
from exla_opt.budget.refine import try_near_misses, try_refined
from exla_opt.budget.search import Search
from exla_opt.budget.ways import coarse_first, is_coarse, large_first, quick_first, step_by_step
from exla_opt.ir.walk import number_of_ops
from exla_opt.options import Options

# A module of up to this many ops is tried with all sizes that may be the fastest, a larger one until it fits at about
# the speed of the unsplit program, with the fewer sizes the more ops it has: each attempt takes time linear in them.
# Above the second number it takes minutes.
_SMALL, _OPS_OF_ALL = 150, 6_000
# Above this many ops, a program that fits is not tried in slices. This many ways show whether slices are faster.
_VERY_LARGE, _FIRST_WAYS = 800, 2
# Above this many ops, where each attempt takes tens of seconds, few ways are tried, with large slices.
_MUCH_TO_PLAN = 2_000
# Of the slices for a GPU that are larger than the limit leaves room for, one in this many is tried: steps of four.
_OVER = 8
# How many sizes are tried with parts of tensors computed separately, where that was left out.
_WITH_PARTS = 3
# The minimum number of ways.
_LEAST_WAYS = 3


def is_small_module(search: Search) -> bool:
    """Whether all sizes that may be the fastest are tried."""
    return number_of_ops(search.module) <= _SMALL


def may_be_faster(search: Search) -> bool:
    """Whether slices may be faster than a program that already fits, because they stay in a CPU's cache.

    Not for a GPU, where they are no faster, and not for a long module, where each attempt takes seconds.
    """
    return search.attempts[0].options.machine.kind == "cpu" and number_of_ops(search.module) <= _VERY_LARGE


def try_faster(search: Search, sizes: Sequence[Options]) -> Iterator[Attempt]:
    """Try the first ways, and the others if one of these is clearly faster than the original program."""
    first = list(try_ways(search, sizes[:_FIRST_WAYS]))
    yield from first
    if any(is_clearly_faster(found, search.attempts[0]) for found in first):
        yield from try_ways(search, sizes[_FIRST_WAYS:])


def try_ways(search: Search, sizes: Sequence[Options], *, until_one_fits: bool = False) -> Iterator[Attempt]:
    """Try one way after another, for each placement of library calls if there are any.

    until_one_fits: stop at the first attempt that fits for a GPU, where the order is by time, and for a large module if
    it is fast; slices larger than the limit leaves room for come last. For a CPU, a module so large that not all ways
    are tried starts with the coarse ones and stops at the first that fits: of the other ways, only slices of several
    caches have often been faster. They are tried if it is slow. A very large module has few ways.
    In a module of more than `_VERY_LARGE` ops, no parts of tensors are computed separately, which is planned twice: see
    `_try_parts`. Before slices of a large module below a CPU's cache, those at the peaks of near misses are made
    smaller.
    Ways that need not be tried while an attempt seems to fit wait until it turns out not to. The compiler is asked
    before smaller slices of a large module are planned.
    """
    ops = number_of_ops(search.module)
    first = search.attempts[0]
    is_ordered = first.options.machine.kind != "cpu"
    most = max(_LEAST_WAYS, _OPS_OF_ALL // ops)
    is_large = until_one_fits and not is_ordered and len(sizes) > most
    is_very_large = is_large and ops > _MUCH_TO_PLAN
    takes_first = is_ordered or is_large
    leaves_out = until_one_fits and not is_ordered

    def is_over(way: Options) -> bool:
        return way.slice_bytes > search.room

    if until_one_fits and is_ordered:  # larger slices, if nothing fits, are only for the best of what misses
        sizes = [way for at, way in enumerate(sizes) if at % _OVER == 0 or not is_over(way)]
    if until_one_fits:
        sizes = sorted(sizes, key=is_over)
    start = sizes[0].slice_bytes if sizes else 0
    if ops > _VERY_LARGE and leaves_out:
        sizes = [replace(way, separates_parts=False) for way in sizes]
    if is_very_large:
        sizes = large_first(sizes, search.room, smaller=ops <= _OPS_OF_ALL)
        most = len(sizes)
    elif is_large:
        sizes = coarse_first(sizes, search.room, most - 1)
    elif leaves_out:
        sizes = sorted(step_by_step(sizes) if ops <= _SMALL else quick_first(sizes, search.room), key=is_over)
    later: list[Options] = []
    is_refined = False
    # Not for a small module: there, what is tried must not depend on the limit.
    may_be_hopeless = leaves_out and ops > _SMALL
    asks_the_smallest = may_be_hopeless and not is_very_large
    for way in with_the_smallest_first(search, sizes[:most], start) if asks_the_smallest else sizes[:most]:
        if may_be_hopeless and not is_refined and is_small(way, start):
            is_refined = True
            if fastest_that_fits(search) is None:  # asks the compiler, before the slices that take longest to plan
                yield from try_near_misses(search)
        if leaves_out and is_needless(search, way, start, is_small=ops <= _SMALL):
            later.append(way)
            continue
        if may_be_hopeless and is_hopeless(search, way, start):
            continue
        is_early = may_be_hopeless and is_before_larger(search, way, sizes[:most], start)
        for found in _placed(search, way):
            yield found
            is_fast = is_about_as_fast(found, first)
            if is_early and not (is_fast and _is_fastest(search, found)):
                continue  # it shows what slices can save; larger ones are faster
            is_fast = takes_first or (ops > _SMALL and is_fast)
            if until_one_fits and is_fast and search.fits(found) and (takes_first or _ends(found, first)):
                if is_large and not is_very_large:
                    yield from try_larger(search, start)
                return
    for way in later:
        if fastest_that_fits(search) is None or not is_needless(search, way, start, is_small=ops <= _SMALL):
            yield from _placed(search, way)


def _is_fastest(search: Search, found: Attempt) -> bool:
    """Whether no other slices that were tried, whether they fit or not, are faster."""
    split = [each for each in search.attempts if each.options.split_size is not None]
    return steps(found.seconds) <= min(steps(each.seconds) for each in split)


def _ends(found: Attempt, unsplit: Attempt) -> bool:
    """Whether a fast program that fits ends the search: slices of all tensors, which come later, may be faster."""
    return not is_coarse(found.options) or steps(found.seconds) <= steps(unsplit.seconds)


def _placed(search: Search, way: Options) -> Iterator[Attempt]:
    """Try each placement of library calls, unless a much larger threshold shows that it gains nothing."""
    for calls_in_loops in (False, True) if search.has_calls and gains_by_calls(search, way) else (False,):
        placed = replace(way, calls_in_loops=calls_in_loops)
        if not search.is_stuck_above(placed):
            yield search.attempt(placed)


def cut_again(search: Search, sizes: Sequence[Options]) -> Iterator[Attempt]:
    """Try nested tiles, and smaller slices at the peak; of a very large module that misses the limit, only the latter.

    There each attempt takes tens of seconds, so that only those close to the limit are worth it. Before that, attempts
    are repeated for what was left out of them (`_try_parts`).
    """
    ops, is_cpu = number_of_ops(search.module), search.attempts[0].options.machine.kind == "cpu"
    yield from _try_parts(search, ops)
    if is_cpu and ops > _MUCH_TO_PLAN and fastest_that_fits(search) is None:
        yield from try_near_misses(search)
        return
    yield from try_nested(search, sizes, is_large=ops > _SMALL)
    is_quick = is_cpu and ops <= _SMALL
    if is_quick or fastest_that_fits(search) is None:
        yield from try_refined(search, until_one_fits=not is_quick)


def _try_parts(search: Search, ops: int) -> Iterator[Attempt]:
    """If nothing fits, try parts of tensors computed separately where that was left out, least memory first.

    With a few sizes, as those that need the least without it need not be those that need the least with it; with one in
    a very large module, and with none above the ops of which each attempt takes minutes.
    """
    left_out = [each for each in search.attempts if any(remark.may_separate for remark in each.outcome.remarks)]
    if not left_out or ops > _OPS_OF_ALL or fastest_that_fits(search) is not None:
        return
    for each in sorted(left_out, key=search.expected_peak)[: 1 if ops > _MUCH_TO_PLAN else _WITH_PARTS]:
        found = search.attempt(replace(each.options, separates_parts=True))
        yield found
        if search.fits(found):
            return
