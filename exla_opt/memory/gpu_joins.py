"""Which kernels of XLA:GPU become one kernel with several results, after it is decided what is fused into which reader.

The order and the conditions are those of XLA's MultiOutputFusion, without its cost model.
"""

from __future__ import annotations

from dataclasses import replace

from exla_opt.ops.traits import Trait

from .gpu_kernels import LAUNCH
from .priority_fusion import PriorityFusion

# So many readers of one tensor are looked at pair by pair.
_MOST_SIBLINGS = 16
# Ways from one kernel to another that are longer than so many kernels are not looked at.
_LONGEST_WAY = 300


class Joins:
    """Joins the kernels that a fusion has decided on."""

    def __init__(self, priority: PriorityFusion):
        self.ops, self.elements = priority.ops, priority.elements
        self.costs = priority.costs
        self.kernels, self.readers = priority.kernels, priority.readers
        self.able = priority.able

    def find(self) -> list[list[int]]:
        """The kernels that become one kernel with several results.

        Last first, the kernels that read what one writes become one; then it becomes one with one of several of them.
        """
        group = list(range(len(self.ops)))
        members: dict[int, list[int]] = {position: [position] for position in range(len(self.ops))}

        def join(one: int, other: int) -> None:
            gone = members.pop(group[other])
            members[group[one]] += gone
            for each in gone:
                group[each] = group[one]

        for position in range(len(self.kernels) - 1, -1, -1):
            if self.kernels[position] is None or len(self.ops[position].results) != 1:
                continue
            [value] = self.ops[position].results
            readers = [reader for reader in self.readers[position] if self.may_end(reader)]
            if self.elements[value] > 1:
                for place, one in enumerate(readers[:_MOST_SIBLINGS]):
                    for other in readers[place + 1 : _MOST_SIBLINGS]:
                        if (
                            group[one] != group[other]
                            and self.are_alike(one, other)
                            and self.are_apart(members[group[one]], members[group[other]])
                        ):
                            join(one, other)
            if len({group[reader] for reader in self.readers[position]}) < 2 or not self.may_begin(position):
                continue
            for reader in readers:
                if (
                    self.are_alike(position, reader)
                    and not self.reaches_otherwise(position, reader)
                    and self.is_faster(position, reader, value)
                ):
                    join(reader, position)
                    break
        return [sorted(each) for each in members.values() if len(each) > 1]

    def may_end(self, position: int) -> bool:
        """Whether a kernel may write its result beside that of another."""
        op, kernel = self.ops[position], self.kernels[position]
        if kernel is None or not self.able[position] or len(op.results) != 1:
            return False
        if kernel.row:
            return False
        return kernel.ends_in_reduce or Trait.POINTWISE in op.traits

    def may_begin(self, position: int) -> bool:
        """Whether a kernel may write its result beside that of one that reads it."""
        kernel = self.kernels[position]
        return self.may_end(position) and kernel is not None and not kernel.ends_in_reduce and bool(kernel.reads)

    def is_faster(self, position: int, reader: int, value: int) -> bool:
        """Whether a kernel and one of its readers take no longer together than one after the other."""
        kernel, into = self.kernels[position], self.kernels[reader]
        assert kernel is not None and into is not None
        both = self.costs.merged(kernel, into, value)
        both = replace(both, written=both.written + kernel.written, time=-1.0)
        apart = self.costs.seconds(kernel) + self.costs.seconds(into) + LAUNCH
        return self.costs.seconds(both) <= apart

    def are_alike(self, one: int, other: int) -> bool:
        """Whether two kernels go through elements in the same order."""
        return self.order_of(one) == self.order_of(other)

    def order_of(self, position: int) -> int:
        """The elements that a kernel goes through."""
        op, kernel = self.ops[position], self.kernels[position]
        assert kernel is not None
        values = (*op.results, *kernel.reads) if kernel.ends_in_reduce else op.results
        return max(self.elements[value] for value in values)

    def are_apart(self, some: list[int], others: list[int]) -> bool:
        """Whether none of some kernels needs one of others, nor the other way."""
        last = max(*some, *others)
        reached = self.reached(some, last)
        back = self.reached(others, last)
        return reached.isdisjoint(others) and back.isdisjoint(some) and len(reached) + len(back) <= _LONGEST_WAY

    def reached(self, start: list[int], last: int) -> set[int]:
        """The kernels, up to one, to which a way leads from some."""
        stack, seen = list(start), set[int]()
        while stack and len(seen) <= _LONGEST_WAY:
            for reader in self.readers[stack.pop()]:
                if reader <= last and reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return seen

    def reaches_otherwise(self, start: int, end: int) -> bool:
        """Whether a way leads from one kernel to another over a third."""
        stack = [reader for reader in self.readers[start] if reader < end]
        seen = set(stack)
        while stack:
            for reader in self.readers[stack.pop()]:
                if reader == end:
                    return True
                if reader < end and reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
            if len(seen) > _LONGEST_WAY:
                return True
        return False
