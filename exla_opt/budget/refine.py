"""Smaller slices only where the peak is: tried after attempts with one slice size for the entire module.

Normally one region causes the peak. With smaller slices everywhere, the others take more trips and save nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import fastest, front, is_cheaper, steps
from exla_opt.budget.search import Search
from exla_opt.budget.ways import SMALLEST_SLICE

# How many of the fastest attempts over the limit are refined; if nothing fits, the smallest as well.
_FASTEST = 2
# A near miss is predicted, or compiled, at no more than this many times the limit.
_NEAR = 1.25
# How often the slices at the peak shrink, and the factor of each step: those of near misses need not shrink much.
_MOST_STEPS, _STEP, _SMALL_STEP = 5, 4, 2
# A peak that falls by less does not count as falling.
_GAIN = 1.02


def try_refined(search: Search, *, until_one_fits: bool) -> Iterator[Attempt]:
    """Try smaller slices at the peak: from the fastest attempts over the limit, and from the smallest if nothing fits.

    The refinements of an attempt do not depend on the limit, unless the search ends with the first that fits. If
    something fits already, only faster programs help, and each program must be no faster than the one before: so a
    larger limit, which fits an earlier one, never gives a slower program. until_one_fits: stop at the first attempt
    that fits, or where that is too far; otherwise look for faster ones too.
    """
    best = front([found for found in search.attempts if found.options.split_size is not None])
    over = [found for found in best if not search.seems_to_fit(found)]
    fits_in = min((steps(found.seconds) for found in best if search.seems_to_fit(found)), default=None)
    starts = [] if until_one_fits else over[:_FASTEST]
    if over and fits_in is None and over[-1] not in starts:
        starts.append(over[-1])
    for start in starts:
        if start.split.large > search.limit:
            continue  # smaller slices cannot save these bytes
        last = start
        for found in _refined(search, start, until_one_fits=until_one_fits):
            if fits_in is not None and steps(found.seconds) < steps(last.seconds):
                search.attempts.remove(found)
                break
            yield found
            if until_one_fits and search.fits(found):
                return
            if fits_in is not None and steps(found.seconds) >= fits_in:
                break
            last = found


def try_near_misses(search: Search) -> Iterator[Attempt]:
    """Try smaller slices at the peaks of the fastest attempts just above the limit, until one fits.

    They are planned sooner, and run faster, than smaller slices of all tensors.
    """
    split = [found for found in search.attempts if found.options.split_size is not None]
    refined = [replace(found.options, slices_at=()) for found in split if found.options.slices_at]
    split = [found for found in split if not found.options.slices_at and found.options not in refined]
    near = [found for found in fastest(split) if search.expected_peak(found) <= _NEAR * search.limit]
    for start in near[:_FASTEST]:
        if start.final.large > search.limit:
            continue  # smaller slices cannot save these bytes
        for found in _refined(search, start, is_near=True):
            yield found
            if search.fits(found):
                return


def _refined(
    search: Search, start: Attempt, *, is_near: bool = False, until_one_fits: bool = False
) -> Iterator[Attempt]:
    """Shrink the slices in the loops at the peak step by step, as long as the peak falls.

    is_near: shrink them in small steps, and at the peak of the final program, recomputed tensors included.
    until_one_fits: stop where a step cost much and further ones cannot be expected to reach the limit.
    """
    step = _SMALL_STEP if is_near else _STEP
    current = start
    for left in reversed(range(_MOST_STEPS)):
        options, split = current.options, current.final if is_near else current.split
        own = dict(options.slices_at)
        least = min(SMALLEST_SLICE, options.slice_bytes)
        now = {place: own.get(place, options.slice_bytes) for place in split.places}
        smaller = {place: max(size // step, least) for place, size in now.items() if size > least}
        if not smaller:
            return
        sizes = own | smaller
        found = search.attempt(replace(options, slices_at=tuple(sorted(sizes.items()))))
        yield found
        # Once the sizes alone need less, less is recomputed: then the final peak may stay at the limit.
        falls = found.split.peak * _GAIN < current.split.peak
        if not falls and (not is_near or found.final.peak * _GAIN >= current.final.peak):
            return
        if until_one_fits and _is_far(search, found, current, left):
            return
        current = found


def _is_far(search: Search, found: Attempt, before: Attempt, steps_left: int) -> bool:
    """Whether a step cost more time than its memory is worth, and more such steps would miss the limit.

    Where two loops are about equally large, the first step saves little, but costs little as well.
    """
    peak, last = found.final.peak, before.final.peak
    saved = min(peak / last, 1.0)
    return is_cheaper(before, found) and peak * saved**steps_left > search.limit
