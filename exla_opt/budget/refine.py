"""Smaller slices where the peak is, and no smaller ones elsewhere: what is tried behind one size for a complete module.

One region holds the peak as a rule. With smaller slices for all, the others take more trips and save nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exla_opt.budget.attempts import Attempt, Search
from exla_opt.budget.choose import front, steps
from exla_opt.budget.ways import SMALLEST_SLICE

# So many of the fastest attempts over the limit are refined, and where nothing fits that which needs least.
_FASTEST = 2
# So many times the slices at the peak get smaller, by so much each time.
_MOST_STEPS, _STEP = 5, 4
# A peak that falls by less has not fallen.
_GAIN = 1.02


def try_refined(search: Search, *, until_one_fits: bool) -> Iterator[Attempt]:
    """Attempts with smaller slices where the peak is: of the fastest over the limit, of the least if nothing fits.

    What an attempt leads to depends on no limit. Where something fits already, only what is faster is of use, and each
    program is to take no less than the one before: so a larger limit, within which that is, has no slower program.
    until_one_fits: whether one that fits is all that is asked for; else faster programs are as well.
    """
    best = front([found for found in search.attempts if found.options.split_size is not None])
    over = [found for found in best if not search.seems_to_fit(found)]
    fits_in = min((steps(found.seconds) for found in best if search.seems_to_fit(found)), default=None)
    starts = [] if until_one_fits else over[:_FASTEST]
    if over and fits_in is None and over[-1] not in starts:
        starts.append(over[-1])
    for start in starts:
        if start.split.large > search.limit:
            continue  # no smaller slices save that
        last = start
        for found in _refined(search, start):
            if fits_in is not None and steps(found.seconds) < steps(last.seconds):
                search.attempts.remove(found)
                break
            yield found
            if until_one_fits and search.fits(found):
                return
            if fits_in is not None and steps(found.seconds) >= fits_in:
                break
            last = found


def _refined(search: Search, start: Attempt) -> Iterator[Attempt]:
    """From one attempt on with smaller and smaller slices in the loops at the peak, as long as it falls."""
    current = start
    for _ in range(_MOST_STEPS):
        options = current.options
        own = dict(options.slices_at)
        least = min(SMALLEST_SLICE, options.slice_bytes)
        now = {place: own.get(place, options.slice_bytes) for place in current.split.places}
        smaller = {place: max(size // _STEP, least) for place, size in now.items() if size > least}
        if not smaller:
            return
        sizes = own | smaller
        found = search.attempt(replace(options, slices_at=tuple(sorted(sizes.items()))))
        yield found
        if found.split.peak * _GAIN >= current.split.peak:
            return
        current = found
