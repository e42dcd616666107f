"""The kernels of XLA:CPU's library YNNPACK, which are put together before any other op is fused.

The rules are those of XLA's LibraryRewriter, found by comparing with what it compiles. A product of matrices is a
kernel. So is a reduce, which grows, last reduce first: up over an operand that nothing outside of the kernel reads, and
down over the only reader of its result. It takes up the kernels that it meets. So the sum of several reduces is one
kernel, which runs when the last of the operands of all of them is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import prod

from .block import Block, is_short
from .machine import Machine
from .readers import drop_dead, reads_of

# The ops that the library has besides reduces.
_OPS = frozenset(
    "abs add broadcast_in_dim ceil convert cosine divide erf exponential exponential_minus_one floor iota log "
    "log_plus_one logistic maximum minimum multiply negate pad power reshape round_nearest_even rsqrt sign sine splat "
    "sqrt subtract tan tanh".split()
)
# Ops that only move elements: of any element type that the library knows.
_MOVES = frozenset("broadcast_in_dim iota pad reshape splat".split())
_DTYPES = frozenset("f32 f64 bf16 i8 ui8".split())
# The most ops of one kernel.
_MOST = 100
# Of ops that compute, the library takes those that read or write a tensor of at least this many elements.
_LEAST_ELEMENTS = 4096


def changes_kernels(block: Block, machine: Machine, producer: Mapping[int, int]) -> bool:
    """Whether a block, its bodies aside, has other kernels with the library than without it.

    It has not if each kernel of the library is an op that is a kernel of its own anyway, and reads nothing in another
    shape: then the kernels run in the same order, and a sum needs no more memory for being the library's.
    """
    if not any(op.name == "reduce" and op.is_library for op in block.ops):
        return False
    readers, stays = reads_of(block, producer)
    drop_dead(block, producer, readers, stays)
    library = LibraryKernels(block, producer, readers, stays)
    return (
        any(len(members) > 1 for members in library.of.values())
        or any(
            block.ops[position].name == "reduce" and is_short(block.ops[position], machine) for position in library.of
        )
        or any(map(library.takes_up_bitcast, block.viewed))
    )


class LibraryKernels:
    """The library's kernels of a block.

    of: the members of each kernel, by its last op, which writes its only result. root: that op, by member.
    """

    def __init__(self, block: Block, producer: Mapping[int, int], readers: Sequence[set[int]], stays: Sequence[bool]):
        self.block, self.ops, self.producer = block, block.ops, producer
        self.readers, self.stays = readers, stays
        self.of: dict[int, set[int]] = {}
        self.root: dict[int, int] = {}
        for position, op in enumerate(self.ops):
            if op.name == "dot_general" and op.is_library and self.is_read(position):
                self.of[position], self.root[position] = {position}, position
        for position in range(len(self.ops) - 1, -1, -1):
            if position not in self.root and self.begins(position) and self.is_read(position):
                self.begin(position)

    def read(self, position: int) -> dict[int, bool]:
        """What the kernel with this last op reads of others, none of it only element by element; it is its reader."""
        members, read = self.of.get(position, set()), {}
        for member in sorted(members):
            for value in self.ops[member].operands:
                source = self.producer.get(value)
                if source in members:
                    continue
                read[value] = False
                if source is not None:
                    self.readers[source].discard(member)
                    self.readers[source].add(position)
        return read

    def takes_up_bitcast(self, value: int) -> bool:
        """Whether one kernel alone reads a tensor, and so also its view in another shape."""
        readers = self.readers[self.producer[value]] if value in self.producer else ()
        kernels = {self.root.get(reader, -1) for reader in readers}
        kernel = kernels.pop() if len(kernels) == 1 else -1
        return kernel >= 0 and (len(self.of[kernel]) > 1 or self.begins(kernel))

    def is_read(self, position: int) -> bool:
        """Whether anything reads an op."""
        return bool(self.readers[position]) or self.stays[position]

    def begins(self, position: int) -> bool:
        """Whether a kernel grows from an op."""
        op = self.ops[position]
        return op.name == "reduce" and op.is_library and self.is_large(position)

    def is_large(self, position: int) -> bool:
        """Whether an op reads or writes enough elements."""
        op, shapes = self.ops[position], self.block.shapes
        return any(prod(shapes[value]) >= _LEAST_ELEMENTS for value in (*op.operands, *op.results))

    def begin(self, position: int) -> None:
        """Let one reduce be a kernel, and grow it until nothing more fits."""
        self.of[position] = {position}
        self.root[position] = position
        while (grown := self.grow(position)) is not None:
            position = grown

    def grow(self, root: int) -> int | None:
        """Take up ops around a kernel, nearest first; the root after that, or None if nothing was taken up."""
        start, members = root, self.of[root]
        before = len(members)
        seen = set(members)
        waiting: deque[tuple[int, bool]] = deque()

        def look_around(positions: Sequence[int], is_up: bool, is_down: bool) -> None:
            for position in positions if is_up else ():
                for source in self.sources(position):
                    if source not in seen and not self.stays[source] and self.readers[source] <= members:
                        seen.add(source)
                        waiting.append((source, True))
            if is_down and (reader := self.only_reader(positions[-1])) is not None and reader not in seen:
                seen.add(reader)
                waiting.append((reader, False))

        look_around(sorted(members), True, True)
        while waiting and len(members) < _MOST:
            position, is_up = waiting.popleft()
            other = self.root.get(position)
            if other is not None:
                if len(members) + len(self.of[other]) > _MOST:
                    continue
                members |= self.of.pop(other)
                root = root if is_up else other
            elif not self.has(position):
                continue
            else:
                members.add(position)
                root = root if is_up else position
                look_around((position,), is_up, not is_up)
        del self.of[start]
        self.of[root] = members
        self.root.update(dict.fromkeys(members, root))
        return root if len(members) > before else None

    def sources(self, position: int) -> list[int]:
        """The ops whose results an op reads, in the order of its operands."""
        return [self.producer[value] for value in self.ops[position].operands if value in self.producer]

    def only_reader(self, position: int) -> int | None:
        """The op that alone reads a kernel's result."""
        if self.stays[position] or len(self.readers[position]) != 1:
            return None
        [reader] = self.readers[position]
        return reader if self.ops[position].results[0] in self.ops[reader].operands else None

    def has(self, position: int) -> bool:
        """Whether the library has an op for these element types."""
        op, dtypes = self.ops[position], self.block.dtypes
        if op.name not in _OPS or len(op.results) != 1:
            return False
        if op.name in _MOVES:
            return op.name != "pad" or self.pads_rows(position)
        return self.is_large(position) and all(dtypes[value] in _DTYPES for value in (*op.operands, *op.results))

    def pads_rows(self, position: int) -> bool:
        """Whether an op pads no dimension of one element, which the library would broadcast."""
        op, shapes = self.ops[position], self.block.shapes
        before, after = shapes[op.operands[0]], shapes[op.results[0]]
        return len(before) == len(after) and all(old != 1 or new == 1 for old, new in zip(before, after, strict=True))
