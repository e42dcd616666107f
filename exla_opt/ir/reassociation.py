"""The dimensions that a reshape merges, splits or keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Group:
    """Dimensions that a reshape turns into others with the same number of elements."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def reassociation_of(before: Sequence[int], after: Sequence[int]) -> list[Group] | None:
    """The smallest groups, in order; sizes of 1 join the group on their left. None for empty tensors."""
    if prod(before) == 0:
        return None
    groups: list[Group] = []
    one = other = 0
    while one < len(before) or other < len(after):
        start, begin = one, other
        sizes = [1, 1]
        while sizes[0] != sizes[1] or sizes[0] == 1:
            if sizes[0] <= sizes[1] and one < len(before):
                sizes[0] *= before[one]
                one += 1
            elif other < len(after):
                sizes[1] *= after[other]
                other += 1
            else:
                break
        while one < len(before) and before[one] == 1:
            one += 1
        while other < len(after) and after[other] == 1:
            other += 1
        groups.append(Group(tuple(range(start, one)), tuple(range(begin, other))))
    return groups
