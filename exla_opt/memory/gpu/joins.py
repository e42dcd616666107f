"""Joins kernels of XLA:GPU into kernels with several results, after fusion.

Order and conditions are those of XLA's MultiOutputFusion, without its cost model.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace

from exla_opt.ops.traits import Trait

from .kernels import LAUNCH, Kernel
from .priority_fusion import PriorityFusion

# At most this many readers of one tensor are compared pairwise.
_MOST_SIBLINGS = 16
# The rank of kernels of one op: none of them starts a kernel with several results.
_SINGLE = 2
# Paths between kernels that are longer than this are not followed.
_LONGEST_WAY = 2000


class Joins:
    """Joins the kernels that a fusion has formed.

    after: the readers of each kernel's results, including ops with bodies. group: of each kernel. members: the kernels
    of each group. spans: the first and the last kernel of each group of several, in order.
    """

    def __init__(self, priority: PriorityFusion):
        self.ops, self.elements = priority.ops, priority.elements
        self.costs = priority.costs
        self.kernels, self.readers = priority.kernels, priority.readers
        self.able, self.producer = priority.able, priority.producer
        self.returned = frozenset(priority.block.returned)
        self.after = [dict(readers) for readers in self.readers]
        for position, op in enumerate(self.ops):
            for value in op.captures if self.kernels[position] is not None else ():
                if value in self.producer:
                    self.after[self.producer[value]][position] = None
        self.group = list(range(len(self.ops)))
        self.spans: list[tuple[int, int]] = []
        self.members: dict[int, list[int]] = {position: [position] for position in range(len(self.ops))}

    def find(self) -> list[list[int]]:
        """Return the groups of kernels that become one kernel with several results.

        Kernels are visited last first: the readers of a kernel's result are joined, then the kernel is joined with one
        of several readers. A tensor that no kernel writes comes before its first reader.
        """
        given = self.given()
        for position in range(len(self.kernels) - 1, -1, -1):
            for value, readers in given.get(position, ()):
                self.join_siblings(value, readers)
            if self.kernels[position] is None or len(self.ops[position].results) != 1:
                continue
            [value] = self.ops[position].results
            self.join_siblings(value, list(self.readers[position]))
            if self.has_one_reader(position, value) or not self.may_begin(position):
                continue
            able = [
                reader
                for reader in self.readers[position]
                if self.may_end(reader)
                and self.are_alike(position, reader)
                and not self.reaches_otherwise(position, reader)
                and self.is_faster(position, reader, value)
            ]
            if able:
                self.join(min(able, key=self.rank), position)
        self.join_repeated()
        return [sorted(each) for each in self.members.values() if len(each) > 1]

    def has_one_reader(self, position: int, value: int) -> bool:
        """Whether only one kernel, with one result, reads a kernel's result: fusion has already considered that."""
        groups = {self.group[reader] for reader in self.after[position]}
        if value in self.returned or len(groups) != 1:
            return False
        return len(self.members[groups.pop()]) == 1

    def join_repeated(self) -> None:
        """Join the kernels that write the same broadcast number for several kernels that overwrite it."""
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for position, op in enumerate(self.ops):
            if op.name == "broadcast_in_dim" and self.kernels[position] is not None and len(op.operands) == 1:
                if self.ops[self.producer.get(op.operands[0], position)].name != "splat":
                    continue
                key = (op.operands, self.costs.block.shapes[op.results[0]])
                first = found.setdefault(key, position)
                if self.group[first] != self.group[position]:
                    self.join(first, position)

    def join(self, one: int, other: int) -> None:
        """Join two kernels and everything that each is joined with."""
        for each in (one, other):
            members = self.members[self.group[each]]
            if len(members) > 1:
                self.spans.remove((min(members), max(members)))
        gone = self.members.pop(self.group[other])
        members = self.members[self.group[one]]
        members += gone
        insort(self.spans, (min(members), max(members)))
        for each in gone:
            self.group[each] = self.group[one]

    def join_siblings(self, value: int, readers: list[int]) -> None:
        """Join readers of a tensor to kernels with several results, and then to those of several ops."""
        if self.elements[value] <= 1:
            return
        able = [reader for reader in sorted(readers, reverse=True) if self.may_end(reader)]
        able = sorted(filter(lambda reader: self.ops[reader].name != "transpose", able), key=self.rank)[:_MOST_SIBLINGS]
        for place, one in enumerate(able):
            if self.rank(one) == _SINGLE:
                break
            for other in able[place + 1 :]:
                if (
                    self.group[one] != self.group[other]
                    and self.are_alike(one, other)
                    and self.are_apart(self.members[self.group[one]], self.members[self.group[other]])
                ):
                    self.join(one, other)

    def rank(self, position: int) -> int:
        """0 for a part of a kernel with several results, 1 for a kernel of several ops, 2 for one of a single op."""
        kernel = self.kernels[position]
        assert kernel is not None
        if len(self.members[self.group[position]]) > 1:
            return 0
        return 1 if kernel.size > 1 else _SINGLE

    def given(self) -> dict[int, list[tuple[int, list[int]]]]:
        """The tensors that no kernel computes, with the kernels that read each, by the first of those."""
        readers: dict[int, list[int]] = {}
        for position, kernel in enumerate(self.kernels):
            for value in kernel.reads if kernel is not None else ():
                if value not in self.producer:
                    readers.setdefault(value, []).append(position)
        found: dict[int, list[tuple[int, list[int]]]] = {}
        for value, positions in readers.items():
            found.setdefault(positions[0], []).append((value, positions))
        return found

    def may_end(self, position: int) -> bool:
        """Whether a kernel may be joined with a sibling; one op only if elementwise, a reduce or a tiled transpose."""
        op, kernel = self.ops[position], self.kernels[position]
        if kernel is None or kernel.row or not self.able[position] or len(op.results) != 1:
            return False
        if op.name == "transpose":
            return self.transposes_tiles(position)
        if op.name == "concatenate":  # loops over each operand separately
            return False
        return kernel.size > 1 or kernel.ends_in_reduce or Trait.POINTWISE in op.traits

    def may_begin(self, position: int) -> bool:
        """Whether a kernel may be joined with one of its readers."""
        op, kernel = self.ops[position], self.kernels[position]
        if kernel is None or kernel.row or not self.able[position] or len(op.results) != 1 or op.name == "transpose":
            return False
        if op.name == "concatenate" and kernel.size > 1:
            return False
        return not kernel.ends_in_reduce and bool(kernel.reads)

    def is_faster(self, position: int, reader: int, value: int) -> bool:
        """Whether a kernel and one of its readers take no longer joined than one after the other."""
        kernel, into = self.kernels[position], self.joined_kernel(reader)
        assert kernel is not None
        both = self.costs.merged(kernel, into, value)
        both = replace(both, written=both.written + kernel.written, time=-1.0)
        apart = self.costs.seconds(kernel) + self.costs.seconds(into) + LAUNCH
        return self.costs.seconds(both) <= apart

    def joined_kernel(self, position: int) -> Kernel:
        """A kernel and those joined with it as one, which reads each tensor in all their ways."""
        parts = [kernel for each in self.members[self.group[position]] if (kernel := self.kernels[each]) is not None]
        made, *others = parts
        for other in others:
            reads = {value: dict(ways) for value, ways in made.reads.items()}
            for value, ways in other.reads.items():
                found = reads.setdefault(value, {})
                found.update({way and made.ways + way: often for way, often in ways.items()})
            made = replace(
                made,
                flops=made.flops + other.flops,
                threads=max(made.threads, other.threads),
                written=made.written + other.written,
                size=made.size + other.size,
                reads=reads,
                code={**other.code, **made.code},
                ways=made.ways + other.ways,
                across=made.across | other.across,
                time=-1.0,
                traffic={},
            )
        return made

    def are_alike(self, one: int, other: int) -> bool:
        """Whether two kernels iterate in the same order, and reduce the same dimensions if both reduce."""
        first, second = self.hero(one), self.hero(other)
        if self.order_of(first) != self.order_of(second):
            return False
        moved = [each for each in (first, second) if self.ops[each].name == "transpose"]
        if moved and (len(moved) > 1 or self.ends_in_reduce(first) or self.ends_in_reduce(second)):
            return False
        one_hero, other_hero = (kernel.hero for each in (first, second) if (kernel := self.kernels[each]) is not None)
        both = self.ends_in_reduce(first) and self.ends_in_reduce(second)
        return not both or one_hero == other_hero

    def hero(self, position: int) -> int:
        """The kernel that determines the loop of its group: the first that reduces."""
        reducing = (each for each in sorted(self.members[self.group[position]]) if self.ends_in_reduce(each))
        return next(reducing, position)

    def transposes_tiles(self, position: int) -> bool:
        """Whether a kernel iterates over a transpose's operand, in tiles, instead of its result."""
        return self.ops[position].name == "transpose" and self.ops[position].together == 1

    def ends_in_reduce(self, position: int) -> bool:
        """Whether the last op of a kernel reduces more than a few elements."""
        kernel = self.kernels[position]
        return kernel is not None and kernel.ends_in_reduce

    def order_of(self, position: int) -> int:
        """The number of elements that a kernel iterates over."""
        op, kernel = self.ops[position], self.kernels[position]
        assert kernel is not None
        values = (*op.results, *kernel.reads) if kernel.ends_in_reduce else op.results
        return max(self.elements[value] for value in values)

    def are_apart(self, some: list[int], others: list[int]) -> bool:
        """Whether no kernel of one list depends on one of the other, in either direction."""
        last = self.last_on_the_way(max(*some, *others))
        reached = self.reached(some, last)
        back = self.reached(others, last)
        return reached.isdisjoint(others) and back.isdisjoint(some) and len(reached) + len(back) <= _LONGEST_WAY

    def last_on_the_way(self, last: int) -> int:
        """The last kernel from which a path through joined kernels may lead back before another."""
        for first, end in self.spans:
            if first > last:
                break
            last = max(last, end)
        return last

    def reached(self, start: list[int], last: int) -> set[int]:
        """The kernels, up to `last`, that paths from `start` reach, including those joined with them."""
        stack, seen = list(start), set[int]()
        while stack and len(seen) <= _LONGEST_WAY:
            for reader in self.after[stack.pop()]:
                for each in self.members[self.group[reader]] if reader <= last and reader not in seen else ():
                    seen.add(each)
                    stack.append(each)
        return seen

    def reaches_otherwise(self, start: int, end: int) -> bool:
        """Whether a path leads from one kernel to another, or to one joined with it, through a third."""
        group = self.members[self.group[end]]
        last = self.last_on_the_way(max(*group, start))
        first = [reader for reader in self.after[start] if self.group[reader] != self.group[end]]
        seen = self.reached([each for reader in first for each in self.members[self.group[reader]]], last)
        return not seen.isdisjoint(group) or len(seen) > _LONGEST_WAY
