"""Which ways need not be tried, by what earlier attempts have shown.

A small module, whose attempts are quick, is tried with slices of the cache's size, then with larger ones as long as
these are no slower, and with smaller ones as long as these get faster. Of a larger module, slices smaller than some
that seem to fit are not tried: they take longest to plan and to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import steps
from exla_opt.budget.search import Search
from exla_opt.budget.ways import is_coarse
from exla_opt.options import Options

# The search for faster slices ends with this many sizes in a row of which none is faster than a larger one.
_NOT_FASTER = 2
# The factor in predicted time from which a program that recomputes may be slower than one in smaller slices.
_MUCH_SLOWER = 1.5
# A factor in predicted time or memory that counts as a difference.
_LITTLE = 1.02
# Programs predicted at more than this many times the limit have slices too large for it.
_FAR_ABOVE = 1.25


def is_needless(search: Search, way: Options, first: int, *, is_small: bool) -> bool:
    """Whether a way need not be tried if something fits. first: the bytes of the slices that other sizes start from."""
    rule = is_past_the_fastest if is_small else is_needless_in_large
    return is_between(search, way) or is_too_large(search, way) or rule(search, way, first)


def is_too_large(search: Search, way: Options) -> bool:
    """Whether smaller slices of all tensors need far more than the limit already, while other attempts seem to fit.

    Only where these slices hold the memory, not tensors that stay unsplit.
    """
    if is_coarse(way) or not any(_is_plain(found) and search.seems_to_fit(found) for found in search.attempts):
        return False
    smaller = [found for found in search.attempts if _splits_all(found)]
    smaller = [found for found in smaller if found.options.slice_bytes < way.slice_bytes]
    return any(search.expected_peak(found) > _FAR_ABOVE * search.limit >= found.split.large for found in smaller)


def is_between(search: Search, way: Options) -> bool:
    """Whether a larger and a smaller threshold, with the same slices, show that one between them gains nothing.

    Either both gave about the same program, other than the original, or the larger one seems to fit without recomputing
    and is no slower: between two thresholds, times are between theirs.
    """
    if search.has_calls:
        return False
    unsplit = search.attempts[0]
    tried = [found for found in search.attempts if _is_plain(found) and found.options.slice_bytes == way.slice_bytes]
    tried = [found for found in tried if not _are_alike(found, unsplit)]
    above = [found for found in tried if found.options.size_threshold > way.size_threshold]
    below = [found for found in tried if found.options.size_threshold < way.size_threshold]
    if any(_are_alike(one, other) for one in above for other in below):
        return True
    fit = [found for found in above if not found.recomputes and search.seems_to_fit(found)]
    fast = min((steps(found.seconds) for found in fit), default=None)
    return fast is not None and any(fast <= steps(found.seconds) for found in below)


def _are_alike(one: Attempt, other: Attempt) -> bool:
    """Whether two programs take about the same memory, and count as equally fast."""
    least, most = sorted((one.predicted.peak, other.predicted.peak))
    return most <= _LITTLE * least and steps(one.seconds) == steps(other.seconds)


def is_needless_in_large(search: Search, way: Options, first: int) -> bool:
    """Whether a way of a module that takes long to plan should be slower than one that seems to fit.

    first: as in `is_past_the_fastest`. Slices of that size for all tensors are left out where smaller thresholds get
    slower; other slices where larger ones fit without recomputing; and slices smaller than `first` also where larger
    ones fit with it, if these are not much slower than the original or times have risen from larger slices.
    """
    if way.slice_bytes == first and not is_coarse(way):
        alike = [found for found in search.attempts if _is_plain(found) and found.options.slice_bytes == first]
        falling = sorted(alike, key=lambda found: -found.options.size_threshold)
        times = [found.seconds for found in falling]
        is_slower = len(times) > 1 and times[-1] > _LITTLE * min(times[:-1])
        return is_slower and not falling[-1].recomputes and search.seems_to_fit(falling[-1])
    if has_coarser_that_seems_to_fit(search, way):
        return True
    most = _MUCH_SLOWER * search.attempts[0].seconds
    larger = [found for found in search.attempts if found.options.slice_bytes > way.slice_bytes]
    fit = [found for found in larger if _is_plain(found) and search.seems_to_fit(found)]
    is_past = bool(fit) and _is_past([found for found in larger if _splits_all(found)], first)
    return way.slice_bytes < first and (is_past or any(found.seconds <= most for found in fit))


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
    options = found.options
    return options.split_size is not None and not options.calls_in_loops and not options.nested_tiles


def _splits_all(found: Attempt) -> bool:
    return _is_plain(found) and not is_coarse(found.options) and not found.options.slices_at


def _is_past(tried: Sequence[Attempt], first: int) -> bool:
    """Whether slices smaller than those tried are no faster: they get slower, or are no faster twice below `first`."""
    falling = sorted(tried, key=lambda found: -found.options.slice_bytes)
    above = [steps(found.seconds) for found in falling if found.options.slice_bytes >= first]
    if len(above) > 1 and above[-1] > min(above[:-1]):
        return True
    times = [steps(found.seconds) for found in falling if found.options.slice_bytes <= first]
    if len(times) > 1 and times[-1] > min(times[:-1]):
        return True
    return len(times) > _NOT_FASTER and min(times[-_NOT_FASTER:]) >= min(times[:-_NOT_FASTER])


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
