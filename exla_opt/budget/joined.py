"""Several slices in one trip: for a program that fits, as many of them as still fit.

A trip of a loop has a cost of its own, and for a GPU more memory buys fewer trips in two ways: by larger slices, which
the search has tried by then, and by several slices in a trip, which need no more than their inputs and results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.search import Search
from exla_opt.ir.walk import number_of_ops
from exla_opt.options import Options
from exla_opt.passes.joined_trips import joins_any

# The pass that joins trips, and the one that cleans up after it.
JOINS, _CLEANS = "joined-trips", "normalise"
# The numbers of slices in a trip to try, the fastest first.
_SLICES = (8, 4, 2)
# Each takes a prediction and a compile, too long for a module of more ops.
_MOST_OPS = 1_000


def with_joined_trips(search: Search, found: Attempt, tried: Callable[[Options, int], None]) -> Attempt:
    """Return the attempt, which fits, with several slices in a trip if that also fits and is faster; else unchanged.

    Only for a GPU: the tiles of a CPU are sized for its cache, and their trips cost little in comparison.

    tried: called with the sizes and the bytes of each program that is tried.
    """
    if found.options.machine.kind != "gpu" or number_of_ops(found.module) > _MOST_OPS:
        return found
    for slices in _SLICES:
        sizes = replace(found.options, slices_a_trip=slices)
        if not joins_any(found.module, sizes):
            return found
        joined = search.predicted(found.module, found.outcome, (JOINS, _CLEANS), sizes)
        if joined.seconds >= found.seconds:
            return found
        tried(joined.options, joined.peak)
        if search.fits(joined) and _is_faster(joined, found):
            return joined
    return found


def _is_faster(joined: Attempt, found: Attempt) -> bool:
    """Compares the estimates from the compiled kernels, if both were compiled; else the predictions."""
    if joined.estimated is None or found.estimated is None:
        return joined.seconds < found.seconds
    return joined.estimated < found.estimated
