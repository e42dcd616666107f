"""The tiles of a loop: their starts, lengths and numbers. Analysis only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from ..regions.region import Region, Stage

# A loop counts its trips in i32, which XLA prefers.
_MOST_TRIPS = 2**31 - 1
# This many more trips are tried for equal tiles.
_MOST_TRIED = 100_000


@dataclass(frozen=True, slots=True)
class TileRun:
    """A run of equal tiles: region indices [start, start + tile * trips); one trip is straight-line code."""

    start: int
    tile: int
    trips: int


@cache
def balanced_tile(extent: int, longest: int) -> int:
    """The tile length for `extent` indices of which at most `longest` fit: few trips of equal length.

    A divisor of the extent if one is near, else a multiple of 16 that leaves a shorter last tile.
    """
    if longest >= extent:
        return extent
    trips = -(-extent // longest)
    for more in range(trips, trips + min(trips, _MOST_TRIED) + 1):
        if extent % more == 0:
            return extent // more
    even = -(-extent // trips)
    rounded = -(-even // 16) * 16
    return rounded if rounded <= longest else longest


def cut_runs(borders: list[int], longest: int) -> tuple[TileRun, ...]:
    """The tiles between consecutive borders, equal ones as one run."""
    runs = []
    for start, stop in pairwise(borders):
        tile = balanced_tile(stop - start, max(longest, -(-(stop - start) // _MOST_TRIPS)))
        trips, rest = divmod(stop - start, tile)
        runs.append(TileRun(start, tile, trips))
        if rest:
            runs.append(TileRun(stop - rest, rest, 1))
    return tuple(runs)


def tile_of(borders: list[int], longest: int) -> int:
    """The longest tile of `cut_runs`."""
    return max(run.tile for run in cut_runs(borders, longest))


def find_borders(region: Region, stage: Stage) -> list[int]:
    """The region indices at which some tensor begins or ends; between two of them all ops look alike."""
    low, high = region.low, region.high
    borders = {low, high}
    for position in stage.nodes:
        tiled = region.tiled[position]
        for mapping in (*tiled.operands, *tiled.results):
            if mapping is not None:
                borders |= {min(max(mapping.low, low), high), min(max(mapping.low + mapping.length, low), high)}
    return sorted(borders)
