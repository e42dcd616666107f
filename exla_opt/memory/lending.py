"""Temporaries in the buffer of a result that is not yet written; they need no memory of their own.

XLA assigns buffers by decreasing size, those of results first: a temporary goes into one of them if it fits and nothing
else is alive there, whether it is in the function itself or in the body of one of its loops.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, takewhile

from .buffers import STORED
from .live_ranges import Run

# This many results, the largest, lend their buffers; XLA knows no such limit. With 8, the steps of a ConvNeXt, an FNO
# and a variational autoencoder, in slices, were predicted at 6.5, 1.5 and 2.9 times the temporary memory that XLA
# plans; with this many at 0.96, 1.05 and 0.98.
_MOST_BUFFERS = 256


@dataclass
class _Tenant:
    """Tensors that share a buffer. first, last: the points between which they use it, including those of inner runs.

    run: where they are computed. tensors: in program order. kernel: the first to write the buffer.
    """

    size: int
    first: int
    last: int
    run: Run
    tensors: list[int]
    kernel: int

    @cached_property
    def overwritten(self) -> frozenset[int]:
        """The tensors whose buffers the first of its own may reuse."""
        result = self.tensors[0]
        if result not in self.run.block.ops[self.kernel].results:
            return frozenset()
        return frozenset(self.run.buffers.reusable(self.kernel, result, is_lent=True))


@dataclass(slots=True)
class _Buffer:
    """A buffer of a result. tenants: by the points between which they use it."""

    size: int
    tenants: list[_Tenant] = field(default_factory=list)

    def is_free_for(self, tenant: _Tenant) -> bool:
        """Whether nothing else uses the buffer at the same time."""
        tenants, place = self.tenants, bisect(self.tenants, _points(tenant), key=_points)
        before = (tenants[index] for index in range(place - 1, -1, -1))
        after = (tenants[index] for index in range(place, len(tenants)))
        near = chain(
            takewhile(lambda other: other.last >= tenant.first, before),
            takewhile(lambda other: other.first <= tenant.last, after),
        )
        return all(_are_apart(tenant, other) for other in near)

    def add(self, tenant: _Tenant) -> None:
        insort(self.tenants, tenant, key=_points)


def lend(run: Run, held: Collection[int]) -> dict[Run, set[int]]:
    """The temporaries of a run, and of runs inside it, in the buffers of the function's results `held`."""
    found: dict[Run, set[int]] = {}
    buffers = _buffers(run, held, _starts(run, 0))
    if not buffers:
        return found
    tenants = [tenant for tenant in _tenants(run, 0) if tenant.size <= buffers[0].size]
    for tenant in sorted(tenants, key=lambda tenant: (-tenant.size, tenant.first)):
        for buffer in buffers:
            if buffer.size < tenant.size:
                break
            if buffer.is_free_for(tenant):
                buffer.add(tenant)
                found.setdefault(tenant.run, set()).update(tenant.tensors)
                break
    return found


def _length(run: Run) -> int:
    """The number of points of a run: one per step, and those of the runs inside it."""
    return len(run.order) + sum(_length(inner) for inners in run.inner.values() for inner in inners)


def _starts(run: Run, start: int) -> list[int]:
    """The point of every step, and the one after the last."""
    points = [start]
    for step in range(len(run.order)):
        points.append(points[-1] + 1 + sum(map(_length, run.inner[step])))
    return points


def _buffers(run: Run, held: Collection[int], points: list[int]) -> list[_Buffer]:
    """The buffers of the largest results, each occupied by its result from the step in which it is first needed."""
    step_of = {kernel: step for step, kernel in enumerate(run.order)}
    first = {
        value: step_of[position]
        for value, position in run.fusion.producer.items()
        if value in run.elsewhere and position in step_of and run.block.ops[position].name not in STORED
    }
    for step, kernel in enumerate(run.order):
        for new, old in run.buffers.in_place(run.block.ops[kernel]):
            if new in first and old in first and run.buffers.dies(old, step):
                first[new] = min(first[new], first[old])
    sizes = run.block.sizes
    largest = sorted(((sizes[value], first[value], value) for value in set(held) if value in first), reverse=True)
    buffers = []
    for size, step, value in largest[:_MOST_BUFFERS]:
        tenants = [_Tenant(size, points[step], points[-1], run, [value], run.order[step])]
        if value in run.block.donated:
            argument = run.block.donated[value]
            read = run.buffers.last.get(argument, -1)
            tenants.append(_Tenant(size, -1, points[read + 1] - 1, run, [argument], -1))
        buffers.append(_Buffer(size, sorted(tenants, key=_points)))
    return buffers


def _tenants(run: Run, start: int) -> Iterator[_Tenant]:
    """The temporaries of a run and of runs inside it; those that must share a buffer are one."""
    points = _starts(run, start)
    returned = set() if run.block.arguments else set(run.block.returned)  # those of a branch are in its op's buffers
    for group in run.chains():
        if not returned.isdisjoint(group) or group[0] in run.placed:
            continue
        last = max(run.died.get(value, len(run.order) - 1) for value in group)
        born = run.born[group[0]]
        last = max(last, max(run.born[value] for value in group))
        yield _Tenant(run.block.sizes[group[0]], points[born], points[last + 1] - 1, run, group, run.order[born])
    for step, inners in run.inner.items():
        begin = points[step] + 1
        for inner in inners:
            yield from _tenants(inner, begin)
            begin += _length(inner)


def _points(tenant: _Tenant) -> tuple[int, int]:
    return tenant.first, tenant.last


def _are_apart(one: _Tenant, other: _Tenant) -> bool:
    """Whether both can share a buffer: one dies before the other is written, or is overwritten by it."""
    if one.last < other.first or other.last < one.first:
        return True
    if one.run is not other.run:
        return False
    if one.last == other.first:
        return one.tensors[-1] in other.overwritten
    return other.last == one.first and other.tensors[-1] in one.overwritten
