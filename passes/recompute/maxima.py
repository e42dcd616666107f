"""Maxima that must be recomputed together with the tensors that they were taken of.

NOTE [Maxima]

A softmax computes exp(x - max(x)) / sum(exp(x - max(x))). The maximum and the sum are small, and so cheap to store. But
with a recomputed x and a stored maximum the exponent is off by the rounding of x: with x around 1e6 in f32, by 0.06, so
that the exponentials are off by 6 %, and no longer at most 1. XLA may round a copy of x in another way, for example by
multiplying by 1 / sqrt(v) where the original divides by sqrt(v). So if x is recomputed, its maximum and the sum are
recomputed from that copy.

The same holds for what a sort, a cumulative maximum or the maxima of segments select, and for a broadcast that is fused
with its maximum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.values import splat_value
from exla_opt.ir.walk import operations_of
from exla_opt.ops.comparisons import takes_maximum
from exla_opt.ops.traits import Trait, has_trait, traits_of

from .kernels import Schedule
from .readers import written_from

# How many kernels before a maximum, and before what is read together with it, are searched for common tensors.
_MOST_BEHIND = 32


def find_maxima(block: ir.Block, schedule: Schedule, peak: int) -> dict[int, frozenset[int]]:
    """The early tensors that hold a maximum or minimum, each with those behind it that are read together with it.

    And tensors that depend on nothing but a maximum and what is behind it, and are not larger than it, such as a sum of
    exponentials and its logarithm. In the order of their steps. peak: the step; tensors computed up to it are early.
    """
    roots, fused = _roots(block, schedule)
    products = _products(block, schedule)
    # Of maxima, and of tensors that are computed from these and what is behind them alone: all that is behind them, and
    # the bytes of the largest maximum.
    tied: dict[int, tuple[frozenset[int], int]] = {}
    maxima: dict[int, None] = {}
    for kernel in schedule.kernels[: peak + 1]:
        sources = {value for value in kernel.sources if _is_computed(value, schedule)}
        known = [tied[value] for value in sources if value in tied]
        behind = frozenset().union(*(others for others, _ in known), sources & tied.keys())
        is_tied = bool(known) and sources <= behind
        if sources <= maxima.keys() and not products.isdisjoint(kernel.made):
            is_tied = False  # the next layer of a network, after a pooling
        most = max((size for _, size in known), default=0)
        for value in kernel.made:
            if value in schedule.values and (value in roots or (is_tied and schedule.sizes[value] <= most)):
                maxima[value] = None
                tied[value] = _behind(value, schedule), max(most, roots.get(value, 0))
            elif is_tied and any(source in maxima for source in sources):
                tied[value] = behind, most
            elif value in fused:
                tied[value] = _behind(value, schedule), fused[value]
    return _read_together(list(maxima), tied, schedule)


def _roots(block: ir.Block, schedule: Schedule) -> tuple[dict[int, int], dict[int, int]]:
    """The tensors that hold maxima, and those that are computed from one in the same kernel, as exp(x - max(x)) is.

    Each with the most bytes of others that may count as computed from the maximum.
    """
    found: dict[int, int] = {}
    fused: dict[int, int] = {}
    for op in operations_of(block):
        if not takes_maximum(op):
            continue
        is_whole = not traits_of(op.name) & (Trait.CONTROL_FLOW | Trait.POINTWISE)
        alone = set(written_from(op, schedule, _reads_alone)) if is_whole else set()
        # What no kernel reads or writes, as an initial value may be, has no number.
        taken, read = (
            max((schedule.sizes[schedule.number[each]] for each in values if each in schedule.number), default=0)
            for values in (op.results, op.operands)
        )
        most = min(taken, read - 1)
        for value in written_from(op, schedule):
            kernel, size = schedule.kernels[schedule.producer[value]], schedule.sizes[value]
            if value in alone:
                found[value] = max(found.get(value, 0), most)
            elif size < max(schedule.sizes[each] for each in (*kernel.sources, *kernel.made)):
                found[value] = max(found.get(value, 0), size)
            elif is_whole:
                fused[value] = max(fused.get(value, 0), most)
    return found, fused


def _reads_alone(reader: ir.Operation, value: ir.Value) -> bool:
    """Whether an op computes its results from a tensor and from constants alone."""
    others = (other for other in reader.operands if other != value)
    return value in list(reader.operands) and all(splat_value(other) is not None for other in others)


def _products(block: ir.Block, schedule: Schedule) -> set[int]:
    """The tensors that kernels with a product of matrices or a convolution write."""
    contracting = (op for op in operations_of(block) if has_trait(op, Trait.CONTRACTS))
    return {value for op in contracting for value in written_from(op, schedule)}


def _behind(value: int, schedule: Schedule) -> frozenset[int]:
    """What a tensor depends on, a few kernels back, and what the same kernel computes."""
    steps = {schedule.producer[value]: None}
    queue = deque(steps)
    while queue and len(steps) <= _MOST_BEHIND:
        for source in schedule.kernels[queue.popleft()].sources:
            step = schedule.producer.get(source)
            if step is not None and step not in steps:
                steps[step] = None
                queue.append(step)
    found = {source for step in steps for source in schedule.kernels[step].sources if source in schedule.producer}
    return frozenset(found.union(schedule.kernels[schedule.producer[value]].made) - {value})


def _read_together(
    maxima: Sequence[int], tied: Mapping[int, tuple[frozenset[int], int]], schedule: Schedule
) -> dict[int, frozenset[int]]:
    """Of what is behind each maximum, the tensors that one kernel reads together with it or a maximum that it gives.

    Or from which other tensors that this kernel reads are computed: the program itself may compute scores again.
    """
    found: dict[int, frozenset[int]] = {}
    for value in reversed(maxima):
        behind, _ = tied[value]
        steps = schedule.used.get(value, ())
        read = {source for step in steps for source in schedule.kernels[step].sources}
        given = (found.get(made, frozenset()) for step in steps for made in schedule.kernels[step].made)
        computed = (_computed_from(other, value, behind, schedule) for other in read - behind)
        found[value] = behind & read.union(*given) | frozenset().union(*computed)
    return {value: found[value] for value in maxima}


def _computed_from(value: int, maximum: int, behind: Collection[int], schedule: Schedule) -> set[int]:
    """The tensors behind a maximum from which another tensor is computed; none if it depends on others as well."""
    found: set[int] = set()
    seen, stack = {maximum}, [value]
    while stack:
        current = stack.pop()
        if current in behind:
            found.add(current)
        elif current not in seen and _is_computed(current, schedule):
            seen.add(current)
            if len(seen) > _MOST_BEHIND:
                return set()
            stack += schedule.kernels[schedule.producer[current]].sources
    return found


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


def last_steps(maxima: Mapping[int, frozenset[int]], schedule: Schedule) -> dict[int, int]:
    """Of what maxima were taken of, the last step of a maximum to recompute with it, or with one that depends on it."""
    found: dict[int, int] = {}
    for value, others in reversed(list(maxima.items())):
        last = max(schedule.producer[value], found.get(value, 0))
        found.update((other, max(last, found.get(other, 0))) for other in others)
    return found
