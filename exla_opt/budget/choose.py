"""Chooses one of several attempts: the fastest that fits, or the best of those that do not.

Predicted seconds order programs; those within a tenth of each other count as equally fast, and the first of them in the
order of the attempts is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log, log2

from exla_opt.budget.attempt import NEVER, Attempt
from exla_opt.budget.search import Search
from exla_opt.pipeline import Outcome
from exla_opt.remarks import Kind

# The factor in predicted time that makes a program slower.
_SLOWER = 1.1
# How many times faster the prediction must be to split a program that already fits. Above 1.1, no program of
# benchmarks/wild that was run got slower; the rest is a margin for programs that were not.
CLEARLY_FASTER = 1.25
# Programs that take no more than this many times the original's time are fast enough.
_ABOUT_AS_FAST = 1.25
# If nothing fits, a program of this much more memory is as good at half the time.
_ABOUT = 1.05
# A program that saves less than this by a compile is held against a compile of the original.
_MAY_BE_LARGER = 1.25
# A program this many times slower than one that needs more memory gets a note.
_MUCH_SLOWER = 2.0
# The code of a tensor that a loop of the split program writes slice by slice.
_OF_A_LOOP = "EX104"


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


def is_about_as_fast(found: Attempt, unsplit: Attempt) -> bool:
    """Whether a program takes about the time of the original."""
    return found.seconds <= _ABOUT_AS_FAST * unsplit.seconds


def is_slower(found: Attempt, unsplit: Attempt) -> bool:
    """Whether a program takes longer than the original by more than the tenth that counts as equal."""
    return found.seconds > _SLOWER * unsplit.seconds


def fastest_that_fits(search: Search) -> Attempt | None:
    """The fastest attempt within the limit, decided by the compiler if there is one; None if nothing fits.

    Attempts that were compiled for a GPU are compared by the compiled kernels.
    """
    chosen = next((found for found in fastest(search.attempts) if search.fits(found)), None)
    known = [found for found in search.attempts if found.estimated is not None and found.peak <= search.limit]
    return min(known, key=lambda found: steps(found.estimated or 0.0), default=chosen)


def fits_after_all(search: Search) -> Attempt | None:
    """For a search in which nothing fits: the attempt that should need the least, if it fits once it is compiled.

    This compile may be one more than the most of a search: it is asked for only where the predictions say that the
    answer "does not fit" would be false.
    """
    least = min(search.attempts, key=search.expected_peak)
    if search.measure is None or least.measured is not None or not search.seems_to_fit(least):
        return None
    search.compiles_left = max(search.compiles_left, 1)
    search.compile(least)
    return least if least.peak <= search.limit else None


def near_miss(search: Search) -> Attempt:
    """Where nothing fits so far: the attempt of the least cost, where 5 % more memory is worth half the time.

    The last few bytes can cost most of the time, for a limit that is missed all the same. A few attempts are compiled:
    the one that should need the least, the one that should cost the least, and the fastest that should need less than
    those did; the original too, if one of them may be larger, for which the last compile is kept.
    """
    if (late := fits_after_all(search)) is not None:
        return late
    unsplit = search.attempts[0]
    attempts = no_larger_than(unsplit, search.attempts)
    least = min(attempts, key=lambda found: found.predicted.peak)
    search.compile(least)
    if search.measure is None:  # perhaps only since this compile
        # Only the margin keeps these from counting as fitting.
        within = [found for found in attempts if found.predicted.peak <= search.limit]
        return fastest(within)[0] if within else _cheapest(attempts)
    reserved = unsplit.measured is None  # the last compile is for the original
    if search.compiles_left > reserved:
        search.compile(_cheapest([*_unknown(attempts), least]))
    most = min((found.peak for found in attempts if found.measured is not None), default=0)
    smaller = [found for found in _unknown(attempts) if found.predicted.peak < most]
    reserved = reserved and _may_be_larger(search)
    if smaller and search.compiles_left > reserved:
        search.compile(fastest(smaller)[0])
    measured = [found for found in search.attempts if found.measured is not None]
    if within := [found for found in measured if found.peak <= search.limit]:
        return min(within, key=_seconds_of(within))
    if _may_be_larger(search):
        search.compile(unsplit)
    # Never larger than the original, not even slightly.
    return _cheapest([*(found for found in measured if _peak(found) <= _peak(unsplit)), unsplit])


def _may_be_larger(search: Search) -> bool:
    """Whether a compiled attempt may need more than the original."""
    most = search.attempts[0].predicted.peak
    return any(_MAY_BE_LARGER * found.peak > most for found in search.attempts if found.measured is not None)


def _unknown(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts of which no compile is known, by their predicted peaks."""
    asked = {found.predicted.peak for found in attempts if found.measured is not None}
    return [found for found in attempts if found.predicted.peak not in asked]


def _cheapest(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt of the least cost: how often the time doubles, and how often the memory grows by a twentieth."""
    seconds = _seconds_of(attempts)
    return min(attempts, key=lambda found: _cost(seconds(found), _peak(found)))


def _cost(seconds: float, peak: int) -> float:
    return log2(max(seconds, 1e-9)) + log(max(peak, 1)) / log(_ABOUT)


def is_cheaper(found: Attempt, other: Attempt) -> bool:
    """Whether an attempt costs less than another where both miss the limit, as predicted."""
    return _cost(found.seconds, found.predicted.peak) < _cost(other.seconds, other.predicted.peak)


def _peak(found: Attempt) -> int:
    """The compiled bytes, or the predicted ones without a margin."""
    return found.predicted.peak if found.measured is None else found.measured


def _seconds_of(attempts: Sequence[Attempt]) -> Callable[[Attempt], float]:
    """The seconds of a run by which all of these can be compared: those of the compiled kernels, if all are known."""
    if all(found.estimated is not None for found in attempts):
        return lambda found: found.estimated or 0.0
    return lambda found: found.seconds


def smallest(search: Search) -> Attempt:
    """The attempt that needs the least, decided by the compiler if there is one."""
    measured = [found for found in search.attempts if found.measured is not None]
    return min(measured or search.attempts, key=lambda found: found.peak)


def explained(search: Search, found: Attempt) -> Outcome:
    """The outcome of an attempt that does not fit; of the original, with the reasons why the smallest keeps tensors."""
    unsplit, *others = search.attempts
    if found is not unsplit or not others:
        return found.outcome
    missed = [remark for remark in min(others, key=_peak).outcome.remarks if remark.kind is Kind.MISSED]
    reasons = tuple(remark for remark in missed if remark.code != _OF_A_LOOP)
    return replace(found.outcome, remarks=(*found.outcome.remarks, *reasons))


def much_faster(found: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt with the least memory of those that take less than half the time of `found`, if there is one.

    Attempts larger than the original, the first, are left out: no limit would have them written.
    """
    no_larger = no_larger_than(attempts[0], attempts)
    faster = [other for other in no_larger if other.seconds * _MUCH_SLOWER < found.seconds and other.peak < NEVER]
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
