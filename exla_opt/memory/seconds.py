"""How long a machine takes for the kernels of a block, as far as reading and writing memory takes it."""

from __future__ import annotations

from collections import deque

from .schedule import Run

# What so many kernels before wrote is still in the cache where it fits.
_REMEMBERED = 3


def seconds_to_move(run: Run) -> float:
    """The seconds in which a block's kernels read and write what they do, and are started; loops in it count once.

    A slice, and an update in place, move only their own part. What one of the last few kernels wrote is read from the
    cache where it is small enough.
    """
    machine, sizes = run.machine, run.block.sizes
    seconds = 0.0
    recent: deque[tuple[int, ...]] = deque(maxlen=_REMEMBERED)
    for step, kernel in enumerate(run.order):
        op = run.block.ops[kernel]
        for inner in run.inner.get(step, ()):
            seconds += machine.seconds_per_trip + seconds_to_move(inner)
        if op.bodies or not op.results:
            continue
        part = sizes[op.results[0]]
        if op.name == "dynamic_update_slice":
            part = sizes[op.operands[1]]
        cached = stored = 0
        for value in run.inputs[kernel]:
            size = min(sizes[value], part) if op.name in ("dynamic_slice", "dynamic_update_slice") else sizes[value]
            if size < machine.cache_bytes and any(value in written for written in recent):
                cached += size
            else:
                stored += size
        stored += part if op.name == "dynamic_update_slice" else sum(sizes[value] for value in op.results)
        recent.append(op.results)
        seconds += stored / machine.bytes_per_second + cached / machine.cache_bytes_per_second
        seconds += machine.seconds_per_kernel
    return seconds
