"""Which ways need not be tried, by what earlier attempts have shown.

A small module, whose attempts are quick, is tried with slices of the cache's size, then with smaller ones as long as
these get faster, and with larger ones as long as these are no slower. Of a larger module, slices smaller than some that
seem to fit are not tried: they take longest to plan and to run.
"""

from __future__ import annotations

from exla_opt.budget.attempts import Attempt, Search
from exla_opt.budget.choose import steps
from exla_opt.budget.ways import is_coarse
from exla_opt.options import Options

# The search for faster slices ends with this many sizes in a row of which none is faster than a larger one.
_NOT_FASTER = 2


def is_past_the_fastest(search: Search, way: Options) -> bool:
    """Whether the slices between those of some program that seems to fit and those of `way` have got slower already.

    Only for ways that split all tensors larger than a slice. Where smaller slices end does not depend on the limit,
    unless nothing fits by then.
    """
    tried = [found for found in search.attempts if _splits_all(found)]
    if is_coarse(way) or not tried:
        return False
    first = tried[0].options.slice_bytes
    fit = [found for found in tried if not found.recomputes and search.seems_to_fit(found)]
    if way.slice_bytes < first:
        larger = [found for found in tried if found.options.slice_bytes > way.slice_bytes]
        return any(found.options.slice_bytes > way.slice_bytes for found in fit) and _got_no_faster(larger)
    between = [found for found in tried if first < found.options.slice_bytes < way.slice_bytes]
    return any(
        other.options.slice_bytes < found.options.slice_bytes and steps(other.seconds) < steps(found.seconds)
        for found in between
        for other in fit
    )


def _splits_all(found: Attempt) -> bool:
    options = found.options
    return options.split_size is not None and not is_coarse(options) and not options.calls_in_loops


def _got_no_faster(tried: list[Attempt]) -> bool:
    """Whether none of the last few attempts, by falling slices, is faster than the ones before it."""
    falling = sorted(tried, key=lambda found: -found.options.slice_bytes)
    times = [steps(found.seconds) for found in falling]
    return len(times) > _NOT_FASTER and min(times[-_NOT_FASTER:]) >= min(times[:-_NOT_FASTER])


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
