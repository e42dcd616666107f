"""The memory of temporaries in a layout: no tensor moves once it is placed, so gaps remain.

XLA lays them out offline, each in the smallest gap that is free for its lifetime: the largest first, or the
longest-lived first, whichever takes less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from .live_ranges import Run

# Only this many tensors, the largest, are laid out; tensors below this fraction of the peak fill gaps.
_MOST_PLACED, _LEAST_PART = 300, 100


@dataclass(frozen=True, slots=True)
class _Range:
    """A tensor to lay out, with the first and the last point of its lifetime."""

    size: int
    first: int
    last: int


def packed(run: Run, lent: Mapping[Run, Collection[int]]) -> int:
    """The bytes of the layout of the temporaries of a run and of runs inside it; at least the run's peak.

    lent: temporaries in other buffers.
    """
    least = run.peak // _LEAST_PART
    ranges = [each for each in _ranges(run, lent) if each.size > least]
    if len(ranges) > _MOST_PLACED:
        return run.peak
    by_size = _height(ranges, lambda each: (-each.size, each.first))
    by_life = _height(ranges, lambda each: (each.first - each.last, -each.size))
    return max(run.peak, min(by_size, by_life))


def _ranges(run: Run, lent: Mapping[Run, Collection[int]], start: int = 0) -> Iterator[_Range]:
    """The tensors of a run and of runs inside it, scratch included; start: the first point of the run."""
    points = [start]
    for step in range(len(run.order)):
        points.append(points[-1] + 1 + sum(map(_length, run.inner[step])))
    # Results of a branch are in the buffers of its op.
    away = {*lent.get(run, ()), *(() if run.block.arguments else run.block.returned)} if start else lent.get(run, ())
    for chain in run.chains():
        if chain[0] not in away:
            last = max(run.died.get(value, len(run.order) - 1) for value in chain)
            last = max(last, *(run.born[value] for value in chain))
            yield _Range(run.block.sizes[chain[0]], points[run.born[chain[0]]], points[last + 1] - 1)
    for step, inners in run.inner.items():
        begin = points[step] + 1
        for inner in inners:
            yield from _ranges(inner, lent, begin)
            begin += _length(inner)
        if not inners and run.scratches[step]:
            yield _Range(run.scratches[step], points[step], points[step])


def _length(run: Run) -> int:
    """The number of points of a run: one per step, and those of the runs inside it."""
    return len(run.order) + sum(_length(inner) for inners in run.inner.values() for inner in inners)


def _height(ranges: list[_Range], order: Callable[[_Range], tuple[int, int]]) -> int:
    placed: list[tuple[int, int, _Range]] = []  # bottom, top
    height = 0
    for each in sorted(ranges, key=order):
        others = sorted(
            (bottom, top) for bottom, top, other in placed if other.first <= each.last and each.first <= other.last
        )
        best, smallest, end = -1, 0, 0
        for bottom, top in others:
            gap = bottom - end
            if gap >= each.size and (best < 0 or gap < smallest):
                best, smallest = end, gap
            end = max(end, top)
        place = best if best >= 0 else end
        placed.append((place, place + each.size, each))
        height = max(height, place + each.size)
    return height
