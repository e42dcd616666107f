"""Several slices in one trip: of a program that fits, the one with as many of them as still fit.

A trip of a loop has its own cost, and for a GPU more memory buys fewer trips twice: by longer slices, which the search
has tried by then, and by several of them in a trip, which takes no more than what they are cut from and what they make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from exla_opt.budget.attempts import Attempt, Search
from exla_opt.options import Options

# The pass that joins trips, and the one that cleans up behind it.
JOINS, _CLEANS = "joined-trips", "normalise"
# So many slices in a trip are tried, the fastest first.
_SLICES = (8, 4, 2)


def with_joined_trips(search: Search, found: Attempt, tried: Callable[[Options, int], None]) -> Attempt:
    """The attempt, which fits, with several slices in a trip where that fits too and is faster; else as it is.

    Only for a GPU: the tiles of a CPU are meant for its cache, and their trips cost little beside them.

    tried: is called with the sizes and the bytes of each program that is tried.
    """
    if found.options.machine.kind != "gpu":
        return found
    for slices in _SLICES:
        sizes = replace(found.options, slices_a_trip=slices)
        joined = search.predicted(found.module, found.outcome, (JOINS, _CLEANS), sizes)
        if joined.seconds >= found.seconds:  # there is no loop to join trips of, or nothing to gain
            return found
        tried(joined.options, joined.peak)
        if search.fits(joined) and _is_faster(joined, found):
            return joined
    return found


def _is_faster(joined: Attempt, found: Attempt) -> bool:
    """By the kernels that the compiler made, where it has been asked."""
    if joined.estimated is None or found.estimated is None:
        return joined.seconds < found.seconds
    return joined.estimated < found.estimated
