"""The ways to rewrite a module for a memory limit: pairs of sizes, normally fastest first.

For a GPU they go from the largest slices down, since large slices mean few trips. A CPU is fastest with slices that
stay in its cache, so those come first: for all tensors larger than one slice, then for large tensors only; then smaller
slices; then larger ones.

The ways depend on the program and the machine, not on the limit: a larger limit has the same ones to choose from, and
more of them fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exla_opt.memory.peak import Memory
from exla_opt.options import Options

# Slices below this, the smallest for a CPU, are not worth a loop's trip.
SMALLEST_SLICE = 62_500
# Slices of several caches are this many times larger than those of the cache's size, or more.
SEVERAL = 4
# Slices for a CPU, as fractions of its cache: in steps of four, then the sizes between. Those of several caches are for
# products of matrices with long rows, which are slow with few rows: 20 rows of 50,257 logits are 4 MB.
_OF_CACHE = (1.0, 1 / 4, 1 / 16, 1 / 64, 4.0, 8.0, 16.0, 1 / 2, 1 / 8, 1 / 32)
# Tensors below these fractions of the unsplit program's temporary memory may stay unsplit.
_PARTS = (16, 64, 1024, 256, 4096)
# A coarse threshold is at least two slices; a part of the memory that is less counts if it is more than this many.
# Chosen for a ResNet-50, of which a 64th is 1.79 to 1.99.
_LEAST_COARSE, _COARSE = 1.5, 2
# With a threshold of at most this fraction of the limit's room, the unsplit tensors normally fit.
_OF_ROOM = 16
# How often the slices for a GPU are halved at most, unless they are still larger than the bytes below.
_HALVINGS, _SMALL_ENOUGH = 12, 2**23


def ways(unsplit: Memory, largest: int, options: Options) -> list[Options]:
    """The pairs of sizes to try, the most promising first.

    unsplit: the memory without any split. largest: the bytes of its largest temporary tensor.
    """
    if options.machine.kind == "cpu":
        pairs = _cached(unsplit.temp, largest, options.machine.slices[1])
    else:
        pairs = _falling(min(unsplit.temp, 2 * largest), options.machine.slices[1])
    over = [(threshold, size) for threshold, size in dict.fromkeys(pairs) if threshold < largest]
    return [replace(options, size_threshold=threshold, split_size=size) for threshold, size in over]


def is_coarse(way: Options) -> bool:
    """Whether tensors larger than a slice may stay unsplit."""
    return way.size_threshold > way.slice_bytes


def coarse_first(sizes: Sequence[Options], room: int, most: int) -> list[Options]:
    """Up to `most` coarse ways first, starting with those whose unsplit tensors should find room; then the others.

    They take the least time: small tensors chain a network's large ones into regions of many loops. room: the bytes
    that the limit leaves for temporary tensors.
    """
    coarse = sorted(filter(is_coarse, sizes), key=lambda way: way.size_threshold)
    small = [way for way in coarse if way.size_threshold * _OF_ROOM <= room]
    first = [*small[::-1], *coarse[len(small) :]][:most]
    return first + [way for way in sizes if way not in first]


def large_first(sizes: Sequence[Options], room: int, *, smaller: bool = True) -> list[Options]:
    """Ways for a module of which each takes tens of seconds to plan: large slices of large tensors first.

    Slices of several caches if the limit leaves room for many of them, as they run fewer trips; those of the cache's
    size for large tensors only, then for all; and a quarter of that. Smaller ones take minutes. room: as in
    `coarse_first`. smaller: whether the quarter is tried.
    """
    several, coarse = _with_room(sizes, room), coarse_first(sizes, room, 1)[:1]
    all_tensors = [way for way in sizes if not is_coarse(way) and way.slice_bytes <= sizes[0].slice_bytes]
    return list(dict.fromkeys([*several, *coarse, *all_tensors[: 1 + smaller]]))


def _with_room(sizes: Sequence[Options], room: int) -> list[Options]:
    """The first way with slices of several caches instead, if the limit leaves room for many of them.

    They run fewer trips than slices of the cache's size. What is smaller than a slice stays unsplit. room: as in
    `coarse_first`.
    """
    size = SEVERAL * sizes[0].slice_bytes if sizes else 0
    if size * _OF_ROOM > room:
        return []
    first = coarse_first(sizes, room, 1)[:1]
    return [replace(way, size_threshold=max(way.size_threshold, size), split_size=size) for way in first]


def step_by_step(sizes: Sequence[Options]) -> list[Options]:
    """The ways with slices smaller than the first one's last, by falling size; the others in their order.

    They take longest to plan, and are not needed where they only get slower. sizes: slices of the cache's size first,
    unless those are too large.
    """
    first = sizes[0].slice_bytes if sizes else 0
    smaller = [way for way in sizes if way.slice_bytes < first and not is_coarse(way)]
    return [way for way in sizes if way not in smaller] + sorted(smaller, key=lambda way: -way.slice_bytes)


def quick_first(sizes: Sequence[Options], room: int) -> list[Options]:
    """The ways about by the time that they take to plan: coarse ones first, slices smaller than the first one's last.

    room: as in `coarse_first`.
    """
    return coarse_first(step_by_step(sizes), room, len(sizes))


def _cached(temp: int, largest: int, cached: int) -> list[tuple[int, int]]:
    """Thresholds and slices for a CPU, in bytes."""
    first = min(cached, max(temp // 2, SMALLEST_SLICE))
    sizes = [int(first * part) for part in _OF_CACHE]
    pairs = [(size, size) for size in sizes if SMALLEST_SLICE <= size <= max(temp // 2, first)]
    # Small tensors chain a network's large ones together; with the small ones unsplit, few loops split the large, and
    # tensors that wait for others are recomputed.
    coarse = [(max(temp // part, _COARSE * first), first) for part in _PARTS if temp // part > _LEAST_COARSE * first]
    if not coarse and largest > 2 * first:  # no large network, but one tensor may be far larger than the rest
        coarse = [(largest - 1, first)]
    return [*pairs[:1], *coarse[:2], *pairs[1:4], *coarse[2:], *pairs[4:]]


def _falling(most_of: int, most: int) -> list[tuple[int, int]]:
    """Thresholds and slices for a GPU, in bytes: with large slices, tensors of up to two slices stay unsplit."""
    times = max(_HALVINGS, (most_of // _SMALL_ENOUGH).bit_length())
    halves = [most_of >> each for each in range(1, times)]
    sizes = [size for half in halves for size in (half, 3 * half // 4) if size >= SMALLEST_SLICE]
    return [(threshold, min(size, most)) for size in sizes for threshold in (2 * size, size)]
