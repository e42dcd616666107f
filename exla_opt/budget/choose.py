"""Chooses one of several attempts: the fastest that fits, or the best of those that do not.

Predicted seconds order programs; those within a tenth of each other count as equally fast, and the first of them in the
order of the attempts is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from exla_opt.budget.attempts import Attempt, Search

# The factor in predicted time that makes a program slower.
_SLOWER = 1.1
# How many times faster the prediction must be to split a program that already fits. Above 1.1, no program of
# benchmarks/wild that was run got slower; the rest is a margin for programs that were not.
CLEARLY_FASTER = 1.25
# If nothing fits, this much more memory is as good.
_ABOUT = 1.05
# A program this many times slower than one that needs more memory gets a note.
_MUCH_SLOWER = 2.0


def steps(seconds: float) -> int:
    """Predicted seconds in steps of a tenth: programs of one step count as equally fast."""
    return round(log(max(seconds, 1e-9), _SLOWER))


def fastest(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, fastest first; equally fast ones in their order."""
    return sorted(attempts, key=lambda found: steps(found.seconds))


def is_clearly_faster(found: Attempt, unsplit: Attempt) -> bool:
    """Whether splitting a program that already fits should pay, even if the prediction is off, for no more memory."""
    is_faster = found.seconds * CLEARLY_FASTER < unsplit.seconds
    return is_faster and found.predicted.peak <= unsplit.predicted.peak


def fastest_that_fits(search: Search) -> Attempt | None:
    """The fastest attempt within the limit, decided by the compiler if there is one; None if nothing fits.

    Attempts that were compiled for a GPU are compared by the compiled kernels.
    """
    chosen = next((found for found in fastest(search.attempts) if search.fits(found)), None)
    known = [found for found in search.attempts if found.estimated is not None and found.peak <= search.limit]
    return min(known, key=lambda found: steps(found.estimated or 0.0), default=chosen)


def near_miss(search: Search) -> Attempt:
    """For a search in which nothing fits: the fastest attempt of those that need about the least.

    The last few bytes can cost most of the time. A few attempts are compiled: the one that should need the least, the
    fastest that should need about as little, and the fastest that should need less than those did.
    """
    least = min(search.attempts, key=lambda found: found.predicted.peak)
    search.compile(least)
    unsplit = search.attempts[0]
    if search.measure is None:
        return _about_the_least(no_larger_than(unsplit, search.attempts))
    for ratio in (_ABOUT, None):
        measured = [found for found in search.attempts if found.measured is not None]
        most = min(found.peak for found in measured) if ratio is None else int(ratio * least.predicted.peak)
        asked = {found.predicted.peak for found in measured}
        others = [found for found in search.attempts if found.predicted.peak not in asked]
        others = [found for found in others if found.predicted.peak < most]
        if others:
            search.compile(fastest(others)[0])
    measured = [found for found in search.attempts if found.measured is not None]
    if within := [found for found in measured if found.peak <= search.limit]:
        return fastest(within)[0]
    # Never larger than the original, not even slightly.
    no_larger = [found for found in measured if unsplit.measured is None or found.peak <= unsplit.peak]
    return _about_the_least(no_larger or measured)


def _about_the_least(attempts: Sequence[Attempt]) -> Attempt:
    most = _ABOUT * min(found.peak for found in attempts)
    return fastest([found for found in attempts if found.peak <= most])[0]


def smallest(search: Search) -> Attempt:
    """The attempt that needs the least, decided by the compiler if there is one."""
    measured = [found for found in search.attempts if found.measured is not None]
    return min(measured or search.attempts, key=lambda found: found.peak)


def much_faster(found: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt with the least memory of those that take less than half the time of `found`, if there is one.

    Attempts larger than the original, the first, are left out: no limit would have them written.
    """
    no_larger = no_larger_than(attempts[0], attempts)
    faster = [other for other in no_larger if other.seconds * _MUCH_SLOWER < found.seconds]
    return min(faster, key=lambda other: other.peak, default=None)


def no_larger_than(unsplit: Attempt, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts that are predicted to need no more memory than the original does."""
    return [found for found in attempts if found.predicted.peak <= unsplit.predicted.peak]


def front(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The Pareto front of memory and time: each attempt is faster than the next, which needs less memory."""
    chosen: list[Attempt] = []
    for found in fastest(attempts):
        if not chosen or (found.peak < chosen[-1].peak and steps(found.seconds) > steps(chosen[-1].seconds)):
            chosen.append(found)
        elif found.peak < chosen[-1].peak:
            chosen[-1] = found
    return chosen
