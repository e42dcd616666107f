"""Slices of several caches, tried on a large module if the first program that fits is slower than the original.

They run fewer trips, their products have more rows, and they are planned sooner than slices of the cache's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import fastest_that_fits, is_about_as_fast, steps
from exla_opt.budget.needless import is_too_large
from exla_opt.budget.search import Search
from exla_opt.budget.ways import SEVERAL
from exla_opt.options import Options

# How many times larger they are than the slices of the cache's size.
_TIMES = (SEVERAL, 8, 16)
# The same, where the first of these do not fit or are no faster.
_LESS = 2


def try_larger(search: Search, first: int) -> Iterator[Attempt]:
    """Try ever larger slices of all tensors, as long as they seem to fit and get faster.

    first: the bytes of the slices of the cache's size.
    """
    best = fastest_that_fits(search)
    if best is None or best.options.slice_bytes > first or is_about_as_fast(best, search.attempts[0]):
        return
    for times in _TIMES:
        found = _planned(search, best.options, times * first)
        if found is not None:
            yield found
        if found is None or not search.seems_to_fit(found) or steps(found.seconds) >= steps(best.seconds):
            break
        best = found
    if best.options.slice_bytes <= first:
        found = _planned(search, best.options, _LESS * first)
        if found is not None:
            yield found


def _planned(search: Search, like: Options, size: int) -> Attempt | None:
    """The attempt with all tensors in slices of a size, in bytes; None if these are too large to be of use.

    like: the other options. Slices of a near miss that differ by place are those of the size as well.
    """
    way = replace(like, size_threshold=size, split_size=size, slices_at=())
    if size > search.room or size >= search.attempts[0].largest or is_too_large(search, way):
        return None
    return search.attempt(way)
