"""Long loops in segments: one carry per segment is stored, and the steps of one segment at a time are run again.

    while i < n: stack[i] = g(%h); %h = f(%h)       while i < n: starts[i / length] = %h; %h = f(%h)
    while j < n: use(stack[n - 1 - j])         ->   while s < n / length, from the last one back:
                                                      while k < length: stack[k] = g(%h); %h = f(%h)
                                                      while k < length: use(stack[length - 1 - k])

NOTE [Lengths]

With n steps, c bytes of carries and r stored bytes per step, segments of l steps take c * n / l + r * l bytes: the
minimum is at l = sqrt(n * c / r), where both are equal (Griewank, 1992; Chen et al., 2016). If all stacks fit so, they
are kept, and every step runs once more; otherwise the two inner loops are processed like any others. Steps after the
last full segment form one of their own. The forward loop writes its carry in every step, at the next segment's row: the
last value written there is the one that the segment begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.types import Types

from .indices import Indices
from .readers import step_readers
from .stacks import Stack
from .steps import Step

# Shorter loops are not worth two more loops.
_FEW = 16
# The stored bytes must fall to this fraction: a step runs once more, or twice.
WORTHWHILE = 0.7


@dataclass(frozen=True, slots=True)
class Segments:
    """How a pair of loops is split. reader: the loop that reads. backwards: whether it reads the last step first.

    carries: by number, those stored at a segment's first step. stacks: those read. length: steps of a segment. bytes:
    of the stacks of carries and of those of one segment.
    """

    reader: ir.Operation
    backwards: bool
    carries: tuple[int, ...]
    stacks: tuple[Stack, ...]
    length: int
    bytes: int


def choose_segments(
    step: Step, wanted: Sequence[Stack], after: int, most: float, threshold: int, indices: Indices, types: Types
) -> Segments | None:
    """Segments for a loop whose stacks otherwise take `after` bytes; None if not legal or worthwhile.

    most: the bytes up to which segments are worthwhile.
    """
    trips = step.counting.trips
    if trips < _FEW:
        return None
    carries = _carries_of(step, wanted)
    reader = _only_reader(step, wanted, indices, types)
    if carries is None or reader is None:
        return None
    loop, backwards = reader
    carried = max(sum(step.bytes[carry] for carry in carries), 1)
    length, total = _length(trips, carried, sum(stack.bytes for stack in wanted))
    if total > threshold:
        length, total = _length(trips, carried, after)
    if total > most:
        return None
    return Segments(loop, backwards, carries, tuple(wanted), length, total)


def _length(trips: int, carried: int, stored: int) -> tuple[int, int]:
    """The best length of a segment and its bytes; preferably one without a rest, if there is one nearby."""
    best = min(max(isqrt(trips * carried * trips // max(stored, 1)), 2), trips // 2)
    near = [length for length in range(max(best * 3 // 4, 2), best * 4 // 3 + 1) if trips % length == 0]
    length = min(near, key=lambda each: abs(each - best), default=best)
    return length, carried * (rows_of(trips, length)) + stored // trips * length


def rows_of(trips: int, length: int) -> int:
    """The number of stored carries: one per segment, and the row that the last segment's steps write."""
    return -(-(trips - 1) // length) + 1


def _carries_of(step: Step, wanted: Sequence[Stack]) -> tuple[int, ...] | None:
    """The carries that the stored values depend on, now or in later steps; None if a step must not run again."""
    if any(step.acts):
        return None
    targets = {step.number[stack.value] for stack in wanted if stack.value in step.number}
    while True:
        needed = step.slice_of(targets)
        following = {step.returned[value] for value in needed if step.definers[value] < 0} - {None}
        more = {value for value in following if value is not None} - needed
        if not more:
            break
        targets |= more
    return tuple(sorted(value for value in needed if step.definers[value] < 0 and not step.is_counted(value)))


def _only_reader(
    step: Step, wanted: Sequence[Stack], indices: Indices, types: Types
) -> tuple[ir.Operation, bool] | None:
    """The only loop that reads all of the stacks, step by step, and whether it begins at the end."""
    readers = [(each, stack) for stack in wanted for each in step_readers(step.loop.results[stack.carry], types)]
    loop = readers[0][0].op.block.owner.operation
    if loop.name != "stablehlo.while" or loop.block != step.loop.block or len(loop.attributes):
        return None
    body, counting = loop.regions[1].blocks[0], indices.counting(loop)
    if counting is None or counting.trips != step.counting.trips or counting.step != 1:
        return None
    forwards = np.arange(counting.trips)
    orders = set()
    for each, stack in readers:
        if each.op.block != body or isinstance(each.index, int):
            return None
        index = indices.of(each.index)
        if index is None or index.body is None or index.body != body:
            return None
        steps = stack.sign * (index.numbers - stack.offset) - step.counting.start
        orders.add(0 if np.array_equal(steps, forwards) else 1 if np.array_equal(steps, forwards[::-1]) else 2)
    return None if len(orders) > 1 or 2 in orders else (loop, 1 in orders)
