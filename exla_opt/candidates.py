"""The sizes that are tried for a memory limit, in their order.

For a GPU they go from the largest slices down, for large slices are few trips. A CPU is fastest with slices that stay
in its cache, so those come first: of everything that is larger than one, then of large tensors alone; then smaller
slices, then larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exla_opt.memory.peak import Memory
from exla_opt.options import Options

# Slices below this are not worth a loop's trip.
_SMALLEST_SLICE = 2**14
# How often the slices are halved at most; the real limit is nearly always met within a few.
_HALVINGS = 12
# What is smaller than such a part of the unsplit program's temporary memory may stay unsplit.
_PARTS = (64, 256, 1024, 4096)


def candidates(unsplit: Memory, options: Options, limit: int) -> Iterator[Options]:
    """One slice size after another, those that may fit into what the limit leaves first.

    unsplit: what the program needs without any split. It alone gives the sizes, to which a limit only adds some: so
    the smallest limit that is reported is met when it is given.
    """
    room = limit - (unsplit.peak - unsplit.temp)
    best = options.machine.slices[1]
    if options.machine.kind == "cpu":
        sizes = sorted(_cached_first(unsplit.temp, room, best), key=lambda size: size > room)
        first = [(size, size) for size in sizes[:1]]
        # Small tensors chain a network's large ones together; with the small ones unsplit, few loops split the large.
        parts = [unsplit.temp // part for part in _PARTS]
        coarse = [(part, size) for _, size in first for part in parts if part > 2 * size]
        for threshold, size in [*first, *coarse, *((size, size) for size in sizes[1:])]:
            yield replace(options, size_threshold=threshold, split_size=size)
        return
    for size in sorted(_falling(unsplit.temp // 2, room), key=lambda size: size > room // 2):
        # Where large slices are the aim, what is not larger than two of them is left alone if that will do.
        for threshold in (2 * size, size):
            yield replace(options, size_threshold=threshold, split_size=min(size, best))


def _falling(largest: int, room: int = 0) -> list[int]:
    """Slice sizes from the largest down, each about two thirds to three quarters of the one before; in bytes.

    room: where this is smaller than the largest, they go on until they are small against it.
    """
    last = min(largest, room) if room > 0 else largest
    sizes: list[int] = []
    while largest >= max(_SMALLEST_SLICE, last >> _HALVINGS):
        sizes += [largest, 3 * largest // 4]
        largest //= 2
    return [size for size in sizes if size >= _SMALLEST_SLICE]


def _cached_first(largest: int, room: int, cached: int) -> list[int]:
    """Slice sizes for a CPU, in bytes: what its cache holds, halved again and again; larger ones as a last resort."""
    smaller = [cached >> times for times in range(_HALVINGS)]
    larger = [cached << times for times in range(1, _HALVINGS)]
    sizes = [min(size, largest) for size in smaller] + [size for size in larger if size <= min(largest, room) // 2]
    return [size for size in dict.fromkeys(sizes) if size >= _SMALLEST_SLICE]
