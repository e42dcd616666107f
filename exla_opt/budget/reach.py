"""Whether a limit is within reach at all: the smallest slices are asked first; where they need far more, few others.

What the smallest slices of everything need, or those of large tensors alone, is about the least that a program can do
with. Where that is far above the limit, the search is for the program that comes nearest, and ends early: slices get
larger only as long as they need about as little, for of such programs the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exla_opt.budget.attempts import Attempt, Search
from exla_opt.budget.choose import ABOUT
from exla_opt.budget.ways import is_coarse
from exla_opt.options import Options

# What is predicted to need so many times the limit does not meet it, nor does what lies between such programs.
_FAR = 2.0
# Slices get larger in steps of about four; those between are asked about where such a step was too long.
_STRIDE = 2


def is_out_of_reach(search: Search, sizes: Sequence[Options]) -> bool:
    """Whether the ways that need least are all predicted far above the limit; the search finds them tried by then.

    The first way, which every search tries, says whether to ask the smallest slices, which not every search comes to.
    """
    ways = [*sizes[:1], *_least_ways(sizes)[::-1]]
    asked = (placed for way in ways for placed in search.placed(way))
    return bool(sizes) and all(search.ahead(way).predicted.peak > _FAR * search.limit for way in asked)


def try_nearest(search: Search, sizes: Sequence[Options]) -> Iterator[Attempt]:
    """Attempts that need least and, as long as that is about as little, with larger slices."""
    for way in _least_ways(sizes):
        yield from map(search.attempt, search.placed(way))
    fine = sorted((way for way in sizes if not is_coarse(way)), key=lambda way: way.slice_bytes)
    for at in range(_STRIDE, len(fine), _STRIDE):
        found = [search.attempt(placed) for placed in search.placed(fine[at])]
        yield from found
        if not any(_is_about_the_least(search, each) for each in found):
            yield from map(search.attempt, search.placed(fine[at - 1]))
            return


def _least_ways(sizes: Sequence[Options]) -> list[Options]:
    """Those with the smallest slices of everything, and those that leave all but large tensors as they are."""
    fine = [way for way in sizes if not is_coarse(way)]
    return [*sorted(fine, key=lambda way: way.slice_bytes)[:1], *filter(is_coarse, sizes)]


def _is_about_the_least(search: Search, found: Attempt) -> bool:
    return found.predicted.peak <= ABOUT * min(each.predicted.peak for each in search.attempts)
