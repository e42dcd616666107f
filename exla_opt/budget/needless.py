"""Which ways need not be tried, by what earlier attempts have shown.

A small module, whose attempts are quick, is searched for the fastest slices from those of the cache outwards, as long
as the next ones are faster. Of a larger one, slices smaller than some that seem to fit are not tried: they take longest
to plan and to run.
"""

from __future__ import annotations

from exla_opt.budget.attempts import Attempt, Search
from exla_opt.budget.choose import steps
from exla_opt.budget.ways import is_coarse
from exla_opt.options import Options

# Larger slices than some that need this many times the limit will not fit either.
_FAR_ABOVE = 1.25


def is_past_the_fastest(search: Search, way: Options) -> bool:
    """Whether slices between those of a program that seems to fit and those of `way` are already slower than it.

    Slices smaller than both must be faster to go on, larger ones no slower, and not far above the limit. Only for ways
    that split all tensors larger than a slice.
    """
    if is_coarse(way):
        return False
    tried = [found for found in search.attempts if _splits_all(found)]
    return any(
        _is_between(way.slice_bytes, between.options.slice_bytes, found.options.slice_bytes)
        and _ends(search, found, between)
        for found in tried
        if not found.recomputes and search.seems_to_fit(found)
        for between in tried
    )


def _splits_all(found: Attempt) -> bool:
    options = found.options
    return options.split_size is not None and not is_coarse(options) and not options.calls_in_loops


def _is_between(way: int, between: int, found: int) -> bool:
    return way < between < found or found < between < way


def _ends(search: Search, found: Attempt, other: Attempt) -> bool:
    """Whether the search goes no further than `other` in its direction from an attempt that seems to fit."""
    if other.options.slice_bytes < found.options.slice_bytes:
        return steps(other.seconds) >= steps(found.seconds)
    return steps(other.seconds) > steps(found.seconds) or other.predicted.peak > _FAR_ABOVE * search.limit


def has_coarser_that_seems_to_fit(search: Search, way: Options) -> bool:
    """Whether larger slices than those of `way` are probably within the limit: smaller ones are slower.

    Larger slices that need recomputing or library calls in loops do not count, as smaller ones may be faster.
    """
    return any(
        found.options.split_size is not None
        and found.options.slice_bytes > way.slice_bytes
        and not found.options.calls_in_loops
        and not found.recomputes
        and search.seems_to_fit(found)
        for found in search.attempts
    )
