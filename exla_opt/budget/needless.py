"""Which ways need not be tried, by what earlier attempts have shown.

A small module, whose attempts are quick, is tried with slices of the cache's size, then with larger ones as long as
these are no slower, and with smaller ones as long as these get faster. Of a larger module, slices smaller than some
that seem to fit are not tried: they take longest to plan and to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from exla_opt.budget.attempts import Attempt, Search
from exla_opt.budget.choose import steps
from exla_opt.budget.ways import is_coarse
from exla_opt.options import Options

# The search for faster slices ends with this many sizes in a row of which none is faster than a larger one.
_NOT_FASTER = 2


def is_between_equals(search: Search, way: Options) -> bool:
    """Whether a larger and a smaller threshold, with the same slices, gave the same figures."""
    alike = [found for found in search.attempts if _is_plain(found) and found.options.slice_bytes == way.slice_bytes]
    above, below = (
        {
            (each.predicted.peak, each.seconds)
            for each in alike
            if (each.options.size_threshold > way.size_threshold) is up
        }
        for up in (True, False)
    )
    return not above.isdisjoint(below)


def is_needless_in_large(search: Search, way: Options, first: int) -> bool:
    """Whether a way of a module that takes long to plan is slower, by what was tried, than one that seems to fit.

    first: as in `is_past_the_fastest`. Slices of that size for all tensors are left out where smaller thresholds get
    slower, smaller slices where larger ones fit, unless those recompute and the smaller ones might be faster.
    """
    if way.slice_bytes == first and not is_coarse(way):
        alike = [found for found in search.attempts if _is_plain(found) and found.options.slice_bytes == first]
        falling = sorted(alike, key=lambda found: -found.options.size_threshold)
        return _gets_slower(falling) and search.seems_to_fit(falling[-1])
    if has_coarser_that_seems_to_fit(search, way):
        return True
    tried = [found for found in search.attempts if _splits_all(found)]
    larger = [found for found in tried if found.options.slice_bytes > way.slice_bytes]
    return way.slice_bytes < first and any(map(search.seems_to_fit, larger)) and _is_past(larger, first)


def is_past_the_fastest(search: Search, way: Options, first: int) -> bool:
    """Whether the slices between those of some program that seems to fit and those of `way` have got slower already.

    Only for ways that split all tensors larger than a slice. Where smaller slices end does not depend on the limit,
    unless nothing fits by then. first: the bytes of the slices from which smaller and larger ones are tried.
    """
    tried = [found for found in search.attempts if _splits_all(found)]
    if is_coarse(way):
        return False
    fit = [found for found in tried if not found.recomputes and search.seems_to_fit(found)]
    if way.slice_bytes < first:
        larger = [found for found in tried if found.options.slice_bytes > way.slice_bytes]
        return any(found.options.slice_bytes > way.slice_bytes for found in fit) and _is_past(larger, first)
    between = [found for found in tried if first < found.options.slice_bytes < way.slice_bytes]
    return any(
        other.options.slice_bytes < found.options.slice_bytes and steps(other.seconds) < steps(found.seconds)
        for found in between
        for other in fit
    )


def _is_plain(found: Attempt) -> bool:
    return found.options.split_size is not None and not found.options.calls_in_loops


def _splits_all(found: Attempt) -> bool:
    return _is_plain(found) and not is_coarse(found.options)


def _is_past(tried: Sequence[Attempt], first: int) -> bool:
    """Whether slices smaller than those tried are no faster: they get slower down to `first`, or stay so below it."""
    falling = sorted(tried, key=lambda found: -found.options.slice_bytes)
    if _gets_slower([found for found in falling if found.options.slice_bytes >= first]):
        return True
    times = [steps(found.seconds) for found in falling if found.options.slice_bytes <= first]
    return len(times) > _NOT_FASTER and min(times[-_NOT_FASTER:]) >= min(times[:-_NOT_FASTER])


def _gets_slower(falling: Sequence[Attempt]) -> bool:
    """Whether the last of some attempts, by falling size, is slower than one of the others."""
    return len(falling) > 1 and falling[-1].seconds > min(found.seconds for found in falling[:-1])


def has_coarser_that_seems_to_fit(search: Search, way: Options) -> bool:
    """Whether larger slices than those of `way` are probably within the limit: smaller ones are slower.

    Larger slices that need recomputing or library calls in loops do not count, as smaller ones may be faster.
    """
    return any(
        _is_plain(found)
        and found.options.slice_bytes > way.slice_bytes
        and not found.recomputes
        and search.seems_to_fit(found)
        for found in search.attempts
    )
