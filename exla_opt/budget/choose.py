"""Which of several attempts is taken: the fastest that fits, or the best of those that do not.

Predicted seconds order programs; what is within a tenth of each other counts as equally fast, and the first of them
in the order of `ways.py` is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from exla_opt.budget.attempts import Attempt, Search

# What is predicted to take this much longer is slower.
_SLOWER = 1.1
# So many times faster than the program as it came another must be by prediction, where both fit. Above 1.1 none of the
# programs of benchmarks/wild that were run was slower; the rest is for what was not.
CLEARLY_FASTER = 1.25
# Where nothing fits, so much more memory is as good.
_ABOUT = 1.05
# A program that takes so many times as long as one that needs more memory gets a note.
_MUCH_SLOWER = 2.0


def steps(seconds: float) -> int:
    """Predicted seconds in steps of a tenth: programs of one step count as equally fast."""
    return round(log(max(seconds, 1e-9), _SLOWER))


def fastest(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, the fastest first; of equally fast ones, in their order."""
    return sorted(attempts, key=lambda found: steps(found.seconds))


def is_clearly_faster(found: Attempt, unsplit: Attempt) -> bool:
    """Whether it should be worth it to split what fits as it came, whatever a prediction is off."""
    return found.seconds * CLEARLY_FASTER < unsplit.seconds


def fastest_that_fits(search: Search) -> Attempt | None:
    """The fastest attempt within the limit, by the compiler where there is one. None if there is none.

    Of those that were compiled for a GPU anyway, the fastest by the kernels that the compiler made.
    """
    chosen = next((found for found in fastest(search.attempts) if search.fits(found)), None)
    known = [found for found in search.attempts if found.estimated is not None and found.peak <= search.limit]
    return min(known, key=lambda found: steps(found.estimated or 0.0), default=chosen)


def near_miss(search: Search) -> Attempt:
    """Of a search in which nothing fits: the fastest of those that need about the least.

    The last few bytes can take all the time. The compiler is asked about a few: the one that should need the least, the
    fastest of those that should need about as little; and as long as it says more, the next that should need less.
    """
    least = min(search.attempts, key=lambda found: found.predicted.peak)
    search.compile(least)
    if search.measure is None:
        return _about_the_least(search.attempts)
    for ratio in (_ABOUT, None, None):
        measured = [found for found in search.attempts if found.measured is not None]
        most = min(found.peak for found in measured) if ratio is None else int(ratio * least.predicted.peak)
        asked = {found.predicted.peak for found in measured}
        others = [found for found in search.attempts if found.predicted.peak not in asked]
        others = [found for found in others if found.predicted.peak < most]
        if others:
            search.compile(fastest(others)[0])
    unsplit = search.attempts[0]
    measured = [found for found in search.attempts if found.measured is not None]
    if within := [found for found in measured if found.peak <= search.limit]:
        return fastest(within)[0]
    # Never larger than it came, be it by ever so little.
    no_larger = [found for found in measured if unsplit.measured is None or found.peak <= unsplit.peak]
    return _about_the_least(no_larger or measured)


def _about_the_least(attempts: Sequence[Attempt]) -> Attempt:
    most = _ABOUT * min(found.peak for found in attempts)
    return fastest([found for found in attempts if found.peak <= most])[0]


def smallest(search: Search) -> Attempt:
    """The attempt that needs the least, by the compiler where there is one."""
    measured = [found for found in search.attempts if found.measured is not None]
    return min(measured or search.attempts, key=lambda found: found.peak)


def much_faster(found: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt with the least memory of those that take less than half as long as `found`, if there is one."""
    faster = [other for other in attempts if other.seconds * _MUCH_SLOWER < found.seconds]
    return min(faster, key=lambda other: other.peak, default=None)


def front(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those of which no other needs as little memory and is as fast: each faster than the next, which needs less."""
    chosen: list[Attempt] = []
    for found in fastest(attempts):
        if not chosen or (found.peak < chosen[-1].peak and steps(found.seconds) > steps(chosen[-1].seconds)):
            chosen.append(found)
        elif found.peak < chosen[-1].peak:
            chosen[-1] = found
    return chosen
