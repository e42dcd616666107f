"""Fusion in XLA:CPU: kernel by kernel, last first, each absorbs one producer after another.

The rules are those of XLA's InstructionFusion (with duplication allowed) and of its bound on duplicated code,
FusionNodeIndexingEvaluation, found by comparing with what it compiles:

- An op with several readers is recomputed in each kernel that absorbs it, and written if some reader remains.
- Expensive ops are never recomputed, neither for two kernels nor for two elements.
- An op that reads two or more tensors of its own rank is recomputed only if every path to every reader can be fused.
- A kernel that updates a tensor in place absorbs no op that moves elements of that tensor.
- An op whose code would be emitted more than fifteen times in one kernel is not absorbed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from heapq import heappop, heappush

from exla_opt.ops.traits import Trait

from .block import Block, Operation, fuses, is_short
from .library_kernels import LibraryKernels
from .machine import Machine
from .readers import drop_dead, drop_reads, reads_of

# The most copies of one op's code in a kernel.
_MOST_COPIES = 15
# All kernels of a block together absorb at most 16 ops for each of its ops, and 10,000 more; from then on none absorbs
# an op that others also read, which keeps the total time linear. XLA has no such limit; programs absorb at most 8 for
# each op.
_MOST_ABSORBED, _ABSORBED_ANYWAY = 16, 10_000
# Paths from an op to its readers with more ops than this are taken to contain an op that is not fused.
_LONGEST_WAY = 300
# A concatenation with longer rows, or more tensors, is a separate kernel.
_LONGEST_JOINED_ROW, _MOST_JOINED = 127, 8
# How a reader uses the elements of an operand: each once at its own index, each at most once, some more than once.
_IN_PLACE, _MOVED, _REUSED = 1, 2, 3
# Which operands an op absorbs.
_NONE, _ALL, _WRITTEN = 0, 1, 2

Uses = list[tuple[int, int]]


class Greedy:
    """Decides which ops of a block are written, and what each kernel reads.

    takes: which operands each op absorbs: none, all, or those that it writes in place. fusible, light, expensive,
    pointwise: the ops that can be absorbed, that may be recomputed, that may not, and that are elementwise. uses: how
    each op uses the elements of its first operand and of the others. viewed: as in Fusion.
    """

    def __init__(self, block: Block, machine: Machine, producer: dict[int, int], fusible: Sequence[bool]):
        self.block = block
        self.ops = block.ops
        self.machine = machine
        self.producer = producer
        self.fusible = [able and not joins_alone(op) for able, op in zip(fusible, block.ops, strict=True)]
        self.takes = [_takes(op, machine) for op in block.ops]
        facts = [_facts(op.name, op.traits) for op in block.ops]
        self.expensive = [is_dear for is_dear, _, _ in facts]
        self.pointwise = [straight for _, straight, _ in facts]
        self.uses = [uses for _, _, uses in facts]
        self.light = [able and self.is_light(op) for able, op in zip(self.fusible, block.ops, strict=True)]
        self.readers, self.stays = reads_of(block, producer)
        self.written = [False] * len(self.ops)
        self.inputs: list[dict[int, bool]] = [{} for _ in self.ops]
        self.absorbed = 0
        drop_dead(block, producer, self.readers, self.stays)
        self.library = LibraryKernels(block, producer, self.readers, self.stays) if machine.sums_apart else None
        for position in self.library.root if self.library else ():
            self.fusible[position] = self.light[position] = False
            self.takes[position] = _NONE
        self.viewed = {value for value in block.viewed if not (self.library and self.library.takes_up_bitcast(value))}
        self.alone = self.find_alone()

    def run(self) -> None:
        """Fill `written` and `inputs`."""
        for position in range(len(self.ops) - 1, -1, -1):
            if self.library and position in self.library.root:
                self.written[position] = position in self.library.of
                self.inputs[position] = self.library.read(position)
            elif self.readers[position] or self.stays[position]:
                self.written[position] = True
                self.grow(position)

    def absorbs(self, position: int, index: int) -> bool:
        """Whether the producer of this operand may be fused into its reader."""
        takes = self.takes[position]
        return takes == _ALL or (takes == _WRITTEN and index == 1)

    def grow(self, root: int) -> None:
        """Absorb producers into the kernel of `root`, last in program order first."""
        most_absorbed = _MOST_ABSORBED * len(self.ops) + _ABSORBED_ANYWAY
        ops, producer = self.ops, self.producer
        members = {root}
        last = root
        kind: dict[int, int] = {}  # how the kernel uses the elements of each tensor that it reads
        copies = {root: 1}
        indexed: dict[int, set[int]] = {}  # the members that compute an index into a tensor
        read: dict[int, bool] = {}
        waiting: list[int] = []
        indexers = {root: {root}}

        def take(position: int, own: int, straight: bool) -> None:
            op = ops[position]
            straight = straight and self.pointwise[position]
            takes, by_op = self.takes[position], indexers[position]
            first, others = self.uses[position]
            first, others = max(own, first), max(own, others)
            for value in op.captures:
                read[value] = False
            for index, value in enumerate(op.operands):
                kind[value] = max(kind.get(value, own), others if index else first)
                read[value] = straight and read.get(value, True)
                by = self.indexers(position, index, by_op)
                known = indexed.get(value)
                indexed[value] = by if known is None or known is by else known | by
                if takes == _ALL or (takes == _WRITTEN and index == 1):
                    source = producer.get(value)
                    if source is not None and source not in members:
                        heappush(waiting, -source)

        take(root, _IN_PLACE, True)
        refused = {root}
        while waiting:
            position = -heappop(waiting)
            if position in refused:
                continue
            refused.add(position)
            op = ops[position]
            if not self.fusible[position] or len(op.results) > 1 or self.alone[position]:
                continue
            [value] = op.results
            others = len(self.readers[position]) > 1 or self.stays[position]
            if others and self.absorbed > most_absorbed:
                continue
            if self.expensive[position] and (others or kind[value] == _REUSED):
                continue
            if self.reads_what_is_updated(position, ops[root]):
                continue
            if not self.absorbed_everywhere(last, value):
                continue
            number = sum(copies[user if user >= 0 else (-1 - user) // _MOST_JOINED] for user in indexed[value])
            if len(members) > 1 and self.is_too_much_code(op, number, copies):
                continue
            members.add(position)
            self.absorbed += 1
            last = max(last, position)
            copies[position] = number
            indexers[position] = indexed[value]
            take(position, kind[value], read.pop(value))
            self.readers[position].discard(root)
            for operand in op.operands:
                if operand in producer:
                    self.readers[producer[operand]].add(root)
            if not self.readers[position] and not self.stays[position]:
                drop_reads(self.block, producer, self.readers, position)
        self.inputs[root] = read

    def indexers(self, position: int, index: int, own: set[int]) -> set[int]:
        """The ops that compute where a member of the kernel reads an operand. own: those of the member itself.

        Each op whose operand index differs from its result index computes one, and so does each reshape on the way.
        """
        op, shapes = self.ops[position], self.block.shapes
        if not op.results:
            return own
        shape, result = shapes[op.operands[index]], shapes[op.results[0]]
        if shape == result or op.name == "transpose":
            return own
        is_reshaped = op.name == "concatenate" and len(shape) != len(result)
        return {-1 - position * _MOST_JOINED - index if is_reshaped else position}

    def is_too_much_code(self, op: Operation, number: int, copies: Mapping[int, int]) -> bool:
        """Whether the op's code would be emitted too often. number: how often."""
        if op.name == "broadcast_in_dim":
            return False
        if Trait.NEW_BLOCK in op.traits and (number > 1 or max(copies.values()) > _MOST_COPIES):
            return True
        return number > _MOST_COPIES

    def reads_what_is_updated(self, position: int, root: Operation) -> bool:
        """Whether a kernel that updates a tensor in place would read other elements of it."""
        op = self.ops[position]
        if root.name != "dynamic_update_slice" or self.pointwise[position] or root.operands[0] not in op.operands:
            return False
        return not (op.name == "dynamic_slice" and op.operands[1:] == root.operands[2:])

    def absorbed_everywhere(self, root: int, value: int) -> bool:
        """Whether each op of a kernel, whose last is `root`, can absorb the producer of a tensor that it reads."""
        # Only the root itself may be an op that does not absorb all its operands.
        op = self.ops[root]
        return value not in op.captures and all(
            self.absorbs(root, index) for index, operand in enumerate(op.operands) if operand == value
        )

    def find_alone(self) -> list[bool]:
        """The ops that no reader absorbs: recomputing them would read more, and some path cannot be fused."""
        alone = [False] * len(self.ops)
        for position, op in enumerate(self.ops):
            if not self.readers[position] and not self.stays[position]:
                continue
            for value in dict.fromkeys((*op.operands, *op.captures)):
                source = self.producer.get(value)
                if source is None or alone[source] or not self.fusible[source] or self.light[source]:
                    continue
                alone[source] = not self.fuses_on_all_ways(source, position, alone)
        kept = zip(self.stays, self.fusible, self.light, strict=True)
        return [own or (stays and able and not light) for own, (stays, able, light) in zip(alone, kept, strict=True)]

    def is_light(self, op: Operation) -> bool:
        """Whether recomputing the op reads hardly more than its result: one tensor of its rank, or small ones."""
        shapes, sizes = self.block.shapes, self.block.sizes
        rank = _rank(shapes[op.results[0]])
        big = 0
        for value in op.operands:
            source = self.producer.get(value)
            if (
                source is not None
                and Trait.FREE in self.ops[source].traits
                and not _is_tensor_constant(self.ops[source])
            ):
                continue
            big += _rank(shapes[value]) >= rank
        return big <= 1 or sum(sizes[value] for value in set(op.operands)) <= sizes[op.results[0]]

    def can_fuse(self, source: int, reader: int) -> bool:
        """Whether one op may be fused into the other, considered alone."""
        op = self.ops[reader]
        indices = [index for index, value in enumerate(op.operands) if self.producer.get(value) == source]
        if not self.fusible[source] or not indices or not all(self.absorbs(reader, index) for index in indices):
            return False
        if self.expensive[source]:
            first, others = self.uses[reader]
            once = all((others if index else first) != _REUSED for index in indices)
            return len(self.readers[source]) == 1 and once
        return True

    def fuses_on_all_ways(self, source: int, reader: int, alone: Sequence[bool]) -> bool:
        """Whether every op on a path from `source` to `reader` can be fused with the next."""
        if not self.can_fuse(source, reader):
            return False
        if len(self.readers[source]) == 1:
            return True
        seen: set[int] = set()
        between: list[int] = []
        stack = [reader]
        while stack:
            for value in self.ops[stack.pop()].operands:
                position = self.producer.get(value, -1)
                if position > source and position not in seen:
                    seen.add(position)
                    stack.append(position)
                    between.append(position)
            if len(seen) > _LONGEST_WAY:
                return False
        reached = {source}
        for position in (*sorted(between), reader):
            producers = {self.producer.get(value, -1) for value in self.ops[position].operands} & reached
            if producers:
                reached.add(position)
                if any(alone[each] or not self.can_fuse(each, position) for each in producers):
                    return False
        return True


def joins_alone(op: Operation) -> bool:
    """Whether an op concatenates tensors in a separate kernel, which copies runs of memory."""
    if op.name != "concatenate":
        return False
    return len(op.operands) > _MOST_JOINED or max(op.lengths, default=0) > _LONGEST_JOINED_ROW


def _rank(shape: Sequence[int]) -> int:
    return len(shape) - shape.count(1)


def _is_tensor_constant(op: Operation) -> bool:
    return op.name == "constant"


@cache
def _facts(name: str, traits: Trait) -> tuple[bool, bool, tuple[int, int]]:
    """Whether an op is expensive; is elementwise; and how it uses the elements of its first operand and of the others.

    Of several uses, the larger one.
    """
    straight = Trait.POINTWISE in traits
    if straight:
        uses = _IN_PLACE, _IN_PLACE
    elif name == "broadcast_in_dim":
        uses = _REUSED, _REUSED
    else:
        uses = _MOVED, _REUSED if name == "pad" else _MOVED
    return Trait.EXPENSIVE in traits, straight, uses


def _takes(op: Operation, machine: Machine) -> int:
    """Which producers of its operands may be fused into an op."""
    if op.name == "dynamic_update_slice":
        return _WRITTEN
    if joins_alone(op):
        return _NONE
    able = is_short(op, machine) if op.name == "reduce" else fuses(op)
    return _ALL if able else _NONE
