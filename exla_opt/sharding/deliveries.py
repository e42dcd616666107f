"""Which rows each device sends to which, so that all have their shard of a part that is shifted by any distance.

    u, 3 rows a device     [ a b c | d e f | g h i | j k l ]      concatenate(u, v), 6 rows a device
    result                 [ a b c d e f | g h i j k l | ... ]    device 1 gets rows of devices 2 and 3

A collective permute sends one window of rows from each device to one other. So the rows that are needed are sent in
rounds, in each of which no device sends or receives twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from exla_opt.ops.shifts import Part


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows [low, high) of the shard on device `source` are needed on `target`; nth: of those that `target` needs."""

    source: int
    target: int
    low: int
    high: int
    nth: int


@dataclass(frozen=True, slots=True)
class Round:
    """Deliveries at one time. low, high: the window of rows that each device sends."""

    deliveries: tuple[Delivery, ...]
    low: int
    high: int

    @property
    def is_own(self) -> bool:
        """Whether every device keeps its rows."""
        return all(each.source == each.target for each in self.deliveries)


def rounds_of(part: Part, has: int, wants: int, count: int) -> list[Round]:
    """The rounds that deliver a part to `count` devices, with as few rows as we know how.

    has, wants: the rows of a shard of the operand, and of the result.
    """
    needed = _needed(part, has, wants, count)
    every = -(-has // wants)
    by_distance = _grouped(needed, lambda each: each.source - each.target)
    in_turn = _grouped(needed, lambda each: (each.nth, each.target % every))
    return min((found for found in (by_distance, in_turn) if _is_possible(found)), key=rows_sent)


def rows_sent(rounds: Sequence[Round]) -> int:
    """The rows that each device sends."""
    return sum(each.high - each.low for each in rounds if not each.is_own)


def _needed(part: Part, has: int, wants: int, count: int) -> list[Delivery]:
    found = []
    for target in range(count):
        first = max(target * wants, part.start) + part.by
        last = min((target + 1) * wants, part.stop) + part.by
        nth = 0
        while first < last:
            source = first // has
            end = min(last, (source + 1) * has)
            found.append(Delivery(source, target, first - source * has, end - source * has, nth))
            first, nth = end, nth + 1
    return found


def _grouped(needed: Sequence[Delivery], key: Callable[[Delivery], Hashable]) -> list[Round]:
    groups: dict[Hashable, list[Delivery]] = {}
    for each in needed:
        groups.setdefault(key(each), []).append(each)
    return [
        Round(tuple(group), min(each.low for each in group), max(each.high for each in group))
        for group in groups.values()
    ]


def _is_possible(rounds: Sequence[Round]) -> bool:
    """Whether no device sends or receives twice in a round; always so if all go the same distance."""
    for each in rounds:
        sources, targets = {one.source for one in each.deliveries}, {one.target for one in each.deliveries}
        if not len(each.deliveries) == len(sources) == len(targets):
            return False
    return True
