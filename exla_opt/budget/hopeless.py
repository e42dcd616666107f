"""A limit that no slices reach: it is noticed early, and then fewer sizes are tried.

Slices below a CPU's cache take longest to plan, and most of all where nothing fits, so that no size ends the search.
If none of the larger ones seems to fit, the smallest are tried next. They need the least, or nearly so: where they do
not seem to fit either, every second size shows well enough what memory costs; where they are far above the limit, one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.search import Search
from exla_opt.budget.ways import is_coarse
from exla_opt.options import Options

# Slices of about this fraction of the next larger ones that were tried are tried where nothing fits.
_STEP = 4
# The smallest slices are far above a limit if they need more than this many times as much.
_FAR = 1.5
# Of so many sizes of slices, at most those of the cache, library calls in loops may gain nothing in memory or time
# before smaller slices are not tried with them.
_IN_VAIN = 2
# A peak or a time that falls by less does not count as falling.
_GAIN = 1.02


def with_the_smallest_first(search: Search, sizes: Sequence[Options], first: int) -> Iterator[Options]:
    """The ways in their order; but once no larger slices seem to fit, the smallest come before others below `first`.

    first: the bytes of the slices that other sizes start from. What seems to fit is asked when a way is due.
    """
    smaller = [way for way in sizes if is_small(way, first)]
    least = min(smaller, key=lambda way: way.slice_bytes, default=None)
    is_early = False
    for way in sizes:
        if way in smaller and least is not None and not is_early and not any(map(search.seems_to_fit, search.attempts)):
            is_early = True
            yield least
        if not (is_early and way is least):
            yield way


def is_small(way: Options, first: int) -> bool:
    """Whether all tensors are split into slices smaller than the first."""
    return way.slice_bytes < first and not is_coarse(way)


def is_before_larger(search: Search, way: Options, sizes: Sequence[Options], first: int) -> bool:
    """Whether small slices are tried before larger ones among these sizes, as `with_the_smallest_first` does."""
    tried = {found.options.slice_bytes for found in search.attempts if _splits_all(found)}
    larger = (other for other in sizes if is_small(other, first) and other.slice_bytes > way.slice_bytes)
    return is_small(way, first) and any(other.slice_bytes not in tried for other in larger)


def is_hopeless(search: Search, way: Options, first: int) -> bool:
    """Whether smaller slices were tried, nothing seems to fit, and slices not much larger than these were tried too.

    Or any others below `first`, where the smaller ones are far above the limit.
    """
    if not is_small(way, first) or any(map(search.seems_to_fit, search.attempts)):
        return False
    tried = [found for found in search.attempts if _splits_all(found)]
    sizes = [found.options.slice_bytes for found in tried]
    larger = [size for size in sizes if size > way.slice_bytes]
    smaller = [found for found in tried if found.options.slice_bytes < way.slice_bytes]
    is_far = any(search.expected_peak(found) > _FAR * search.limit for found in smaller)
    if is_far and len({size for size in sizes if size < first}) > 1:
        return True
    return bool(smaller) and bool(larger) and min(larger) < _STEP * way.slice_bytes


def gains_by_calls(search: Search, way: Options) -> bool:
    """Whether library calls in loops may need less memory or time with these slices than calls after the loops.

    They may, unless they did not with slices of two sizes, none of them larger than the cache's: in larger slices there
    may be nothing that calls hold.
    """
    tried = {found.options: found for found in search.attempts if _splits_all(found)}
    first = next((options.slice_bytes for options in tried), 0)
    gains = []
    for options, found in tried.items():
        within = replace(options, calls_in_loops=True)
        if not options.calls_in_loops and within in tried and options.slice_bytes <= first:
            gains.append(_is_better(tried[within], found))
    return not is_small(way, first) or len(gains) < _IN_VAIN or any(gains)


def _is_better(found: Attempt, other: Attempt) -> bool:
    return found.split.peak * _GAIN < other.split.peak or found.seconds * _GAIN < other.seconds


def _splits_all(found: Attempt) -> bool:
    options = found.options
    has_one_size = not options.nested_tiles and not options.slices_at
    return options.split_size is not None and has_one_size and not is_coarse(options)
