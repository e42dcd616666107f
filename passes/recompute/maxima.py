"""Maxima that must be recomputed together with the tensors that they were taken of.

NOTE [Maxima]

A softmax computes exp(x - max(x)) / sum(exp(x - max(x))). The maximum and the sum are small, and so cheap to store. But
with a recomputed x and a stored maximum the exponent is off by the rounding of x: with x around 1e6 in f32, by 0.06, so
that the exponentials are off by 6 %, and no longer at most 1. XLA may round a copy of x in another way, for example by
multiplying by 1 / sqrt(v) where the original divides by sqrt(v). So if x is recomputed, its maximum and the sum are
recomputed from that copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.walk import operations_of
from exla_opt.ops.comparisons import takes_maximum

from .kernels import Schedule
from .readers import written_from

# How many kernels before a maximum are searched for what it was taken of.
_MOST_BEHIND = 32


def find_maxima(block: ir.Block, schedule: Schedule, peak: int) -> dict[int, frozenset[int]]:
    """The early tensors that hold a maximum or minimum, each with those behind it that are read together with it.

    And tensors that depend on nothing but a maximum and what is behind it, and are not larger than it, such as a sum of
    exponentials and its logarithm. In the order of their steps. peak: the step; tensors computed up to it are early.
    """
    roots = {value for op in operations_of(block) if takes_maximum(op) for value in written_from(op, schedule)}
    # Of maxima, and of tensors that are computed from these and what is behind them alone: all that is behind them, and
    # the bytes of the largest maximum.
    tied: dict[int, tuple[frozenset[int], int]] = {}
    maxima: dict[int, None] = {}
    for kernel in schedule.kernels[: peak + 1]:
        sources = {value for value in kernel.sources if _is_computed(value, schedule)}
        known = [tied[value] for value in sources if value in tied]
        behind = frozenset().union(*(others for others, _ in known), sources & tied.keys())
        is_tied = bool(known) and sources <= behind
        most = max((size for _, size in known), default=0)
        largest = max((schedule.sizes[value] for value in (*kernel.sources, *kernel.made)), default=0)
        for value in kernel.made:
            size = schedule.sizes[value]
            if value in schedule.values and ((value in roots and size < largest) or (is_tied and size <= most)):
                maxima[value] = None
                tied[value] = _behind(value, schedule), max(most, size)
            elif is_tied and any(source in maxima for source in sources):
                tied[value] = behind, most
    return _read_together(list(maxima), tied, schedule)


def _behind(value: int, schedule: Schedule) -> frozenset[int]:
    """What a tensor depends on, a few kernels back."""
    steps = {schedule.producer[value]: None}
    queue = deque(steps)
    while queue and len(steps) <= _MOST_BEHIND:
        for source in schedule.kernels[queue.popleft()].sources:
            step = schedule.producer.get(source)
            if step is not None and step not in steps:
                steps[step] = None
                queue.append(step)
    return frozenset(source for step in steps for source in schedule.kernels[step].sources)


def _read_together(
    maxima: Sequence[int], tied: Mapping[int, tuple[frozenset[int], int]], schedule: Schedule
) -> dict[int, frozenset[int]]:
    """Of what is behind each maximum, the tensors that one kernel reads together with it or a maximum that it gives."""
    read: dict[int, set[int]] = {}
    for value in reversed(maxima):
        steps = schedule.used.get(value, ())
        read[value] = {source for step in steps for source in schedule.kernels[step].sources}
        read[value].update(
            source for step in steps for made in schedule.kernels[step].made for source in read.get(made, ())
        )
    return {value: tied[value][0] & read[value] for value in maxima}


def _is_computed(value: int, schedule: Schedule) -> bool:
    """Whether a tensor depends on another one: it is not an argument, and no constant."""
    return value in schedule.producer and bool(schedule.kernels[schedule.producer[value]].sources)


def depending(maxima: Mapping[int, frozenset[int]], values: Collection[int]) -> dict[int, frozenset[int]]:
    """Of maxima in the order of their steps those that depend on some tensors, through other maxima alone."""
    found: dict[int, frozenset[int]] = {}
    for value, others in maxima.items():
        if any(other in found or other in values for other in others):
            found[value] = others
    return found
