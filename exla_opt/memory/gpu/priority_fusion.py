"""Fusion in XLA:GPU: the producer whose fusion saves the most time goes first, into all its readers or into none.

The rules are those of XLA's PriorityFusion and of its cost model, in a form that needs no kernel code:

- A producer that is fused with all its readers saves a kernel, its write and their reads; it costs its own reads and
  a recomputation in each reader and, if a reader repeats elements, for each of those.
- A kernel has one reduce of more than a few elements on any path through it, and nothing is fused after it.
- Row normalisations (softmax) are one kernel from the start, with their reduces inside.
- Fusions that would emit code too often, or give a kernel too many inputs, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op, splat_value

from ..block import Block, Operation, fuses
from ..machine import Machine
from .diamonds import Diamonds
from .kernels import LAUNCH, STRAIGHT, Kernel, Kernels

# Savings are added as integers in this many units per second: their sum is the same in any order.
_UNITS = 2**70
# The limits of a kernel: new blocks of code, code counted in ops, and tensors read.
_MOST_SPLITS, _MOST_CODE, _MOST_INPUTS = 10, 10_000, 95


@dataclass(slots=True)
class _Savings:
    """The savings of fusing a producer into each of its readers, kept between queries.

    A constant has thousands of readers, of which each fusion changes a few. kernel: the producer's, for which the
    savings hold. own, total: by reader, in `_UNITS`, and the sum. refused: the readers that the producer cannot be
    fused into. asked: those that it can, and whose saving is not computed yet.
    """

    kernel: Kernel
    own: dict[int, int] = field(default_factory=dict)
    total: int = 0
    refused: dict[int, None] = field(default_factory=dict)
    asked: dict[int, None] = field(default_factory=dict)

    def forget(self, reader: int) -> None:
        self.total -= self.own.pop(reader, 0)
        self.refused.pop(reader, None)
        self.asked.pop(reader, None)

    def add(self, reader: int, seconds: float) -> None:
        self.own[reader] = round(seconds * _UNITS)
        self.total += self.own[reader]


class PriorityFusion:
    """Decides which ops of a block are written, and what each kernel reads.

    able: for each op, by position, whether it may be fused into a reader.
    """

    def __init__(self, block: Block, machine: Machine, producer: dict[int, int], able: list[bool]):
        self.block, self.ops, self.machine = block, block.ops, machine
        self.producer = producer
        self.costs = Kernels(block, machine)
        self.elements = self.costs.elements
        self.able = able
        self.readers: list[dict[int, None]] = [{} for _ in self.ops]
        self.kept = set(block.returned).union(block.kept, *block.behind.values())
        self.used = self.find_used()
        self.written = list(self.used)
        self.sunk = self.find_sunk()
        for op in self.ops:
            self.kept.update(value for value in op.captures if value not in self.sunk)
        self.kernels = [
            self.costs.of(op, self.sunk) if used else None for op, used in zip(self.ops, self.written, strict=True)
        ]
        for position, kernel in enumerate(self.kernels):
            for value in kernel.reads if kernel else ():
                if value in producer:
                    self.readers[producer[value]][position] = None
        self.versions = [0] * len(self.ops)
        self.savings: list[_Savings | None] = [None] * len(self.ops)
        self.changed_readers: list[dict[int, None]] = [{} for _ in self.ops]
        self.inputs: list[dict[int, bool]] = [{} for _ in self.ops]

    def find_used(self) -> list[bool]:
        used = [False] * len(self.ops)
        needed = set(self.block.returned)
        for position in range(len(self.ops) - 1, -1, -1):
            op = self.ops[position]
            used[position] = op.name == "custom_call" or not needed.isdisjoint(op.results)
            if used[position]:
                needed.update(op.operands, op.captures)
        return used

    def find_sunk(self) -> set[int]:
        """The scalars that only loops read: each body computes its own, and so does each other kernel."""
        ops = self.ops
        known: set[int] = set()
        for op in ops:
            if op.name == "splat" or (op.name == "broadcast_in_dim" and known.issuperset(op.operands)):
                known.update(op.results)
        found: set[int] = set()
        for op in ops:
            if op.name == "while" and op.bodies:
                body = op.bodies[0]
                carried = zip(op.operands, body.arguments, body.returned, strict=False)
                found.update(value for value, before, after in carried if before == after and value in known)
                found.update(known.intersection(op.captures))
        for op in ops:
            read = self.changed(op) if op.name == "while" else op.operands
            found.difference_update(
                value for index, value in enumerate(read) if op.name == "while" or not absorbs(op, index)
            )
        return found

    @staticmethod
    def changed(loop: Operation) -> list[int]:
        if not loop.bodies:
            return list(loop.operands)
        body = loop.bodies[0]
        carried = zip(loop.operands, body.arguments, body.returned, strict=False)
        return [value for value, before, after in carried if before != after]

    def run(self) -> None:
        """Fill `written` and `inputs`."""
        self.normalise_rows()
        queue: list[tuple[float, int, int]] = []
        for position, kernel in enumerate(self.kernels):
            if kernel is not None and self.able[position]:
                gain = self.gain(position)
                if gain >= 0:
                    queue.append((-gain, -position, 0))
        heapify(queue)
        while queue:
            _, place, version = heappop(queue)
            position = -place
            if version != self.versions[position] or not self.readers[position]:
                continue
            for changed in self.fuse(position):
                self.versions[changed] += 1
                gain = self.gain(changed)
                if gain >= 0:
                    heappush(queue, (-gain, -changed, self.versions[changed]))
        for position, kernel in enumerate(self.kernels):
            op = self.ops[position]
            if kernel is not None and self.sunk.issuperset(op.results) and op.results:
                self.written[position] = False
            elif kernel is not None:
                self.inputs[position] = {
                    value: value in kernel.straight if kernel.row else is_straight(kernel, value)
                    for value in kernel.reads
                } | dict.fromkeys((value for value in op.captures if value not in self.sunk), False)

    def normalise_rows(self) -> None:
        """Form one kernel for each row normalisation."""
        found = Diamonds(self.block, self.producer, self.kept, self.used).find()
        for position, inside in reversed(found.items()):
            if self.kernels[position] is None:
                continue
            kernel = self.kernels[position]
            assert kernel is not None
            [result] = self.ops[position].results
            self.kernels[position] = self.costs.normalising(kernel, self.block.shapes[result][-1])
            for other in inside:
                if self.kernels[other] is not None:
                    self.fuse(other)

    def fuse(self, position: int) -> list[int]:
        """Fuse a producer into all its readers; return the ops whose gain may have changed."""
        kernel = self.kernels[position]
        assert kernel is not None
        [value] = self.ops[position].results
        changed: dict[int, None] = {}
        readers = list(self.readers[position])
        for reader in readers:
            merged = self.costs.merged(kernel, self.kernels[reader], value)
            self.kernels[reader] = merged
            for other in merged.reads:
                source = self.producer.get(other)
                if source is not None:
                    self.readers[source].pop(position, None)
                    self.readers[source][reader] = None
                    self.changed_readers[source].update({position: None, reader: None})
                    changed[source] = None
            changed[reader] = None
        self.readers[position] = {}
        self.kernels[position] = None
        self.written[position] = False
        return [each for each in changed if self.able[each] and self.written[each]]

    def gain(self, position: int) -> float:
        """The seconds saved by fusing a producer into all its readers; negative if it cannot be."""
        kernel = self.kernels[position]
        if kernel is None or not self.readers[position] or len(self.ops[position].results) != 1:
            return -1.0
        [value] = self.ops[position].results
        if value in self.kept:
            return -1.0
        saved, changed = self.savings[position], self.changed_readers[position]
        if saved is None or saved.kernel is not kernel:
            saved = self.savings[position] = _Savings(kernel)
            changed = self.readers[position]
        self.changed_readers[position] = {}
        for reader in changed:
            saved.forget(reader)
            into = self.kernels[reader]
            if into is not None and reader in self.readers[position]:
                (saved.asked if self.can_fuse(position, kernel, reader, into, value) else saved.refused)[reader] = None
        if saved.refused:
            return -1.0
        for reader in saved.asked:
            if (into := self.kernels[reader]) is not None:
                own = self.costs.seconds(into) - self.costs.seconds(self.costs.merged(kernel, into, value))
                saved.add(reader, own)
        saved.asked = {}
        if self.ops[position].name == "reshape":
            return inf  # free ops go first
        return LAUNCH + self.costs.seconds(kernel) + saved.total / _UNITS

    def can_fuse(self, position: int, kernel: Kernel, reader: int, into: Kernel, value: int) -> bool:
        op = self.ops[reader]
        indices = [index for index, operand in enumerate(op.operands) if operand == value]
        if op.name == "sort":
            return self.ops[position].name == "iota"
        if not all(absorbs(op, index) for index in indices) or not absorbs(op, -1):
            return False
        if kernel.row or into.row:
            if not self.fits_rows(kernel, into, value):
                return False
        elif (kernel.reduces and into.reduces) or (kernel.ends_in_reduce and not self.may_follow(position, into)):
            return False
        if op.name == "dynamic_update_slice" and not self.may_update(kernel, op):
            return False
        copies = into.code[value]
        splits = into.splits + kernel.splits * copies
        if splits > _MOST_SPLITS or (into.size + kernel.size * copies) * 2**splits > _MOST_CODE:
            return False
        return len(into.reads) + len(kernel.reads) <= _MOST_INPUTS

    def may_follow(self, position: int, into: Kernel) -> bool:
        """Whether the only reader of a reduce may be fused with it: it sums rows, or has ops of one operand."""
        rows = into.hero[:1] == (1,) if into.ends_in_reduce else into.is_unary
        return rows and len(self.readers[position]) == 1

    def may_update(self, kernel: Kernel, update: Operation) -> bool:
        """Whether a kernel reads the tensor that an update overwrites only before that is written."""
        if update.operands[0] not in kernel.reads or not kernel.moving:
            return True
        if len(kernel.moving) > 1:
            return False
        [op] = kernel.moving
        if (
            op.operands[:1] != update.operands[:1]
            or self.block.shapes[op.results[0]] != self.block.shapes[update.operands[1]]
        ):
            return False
        if op.name == "slice":
            return starts_of(self.block, op) == starts_of_update(self.block, update)
        return op.name == "dynamic_slice" and op.operands[1:] == update.operands[2:]

    def fits_rows(self, kernel: Kernel, into: Kernel, value: int) -> bool:
        """Whether two fused kernels can keep rows in registers from the first op to the last."""
        if not kernel.by_rows or not into.by_rows:
            return False
        row = into.row or kernel.row
        is_of_rows = self.elements[value] * row <= max(kernel.threads, into.threads)
        return value not in self.block.viewed or is_of_rows or self.block.shapes[value][-1:] == (row,)


def is_straight(kernel: Kernel, value: int) -> bool:
    """Whether a kernel reads a tensor element by element, in memory order."""
    return list(kernel.reads[value]) == [STRAIGHT] and value not in kernel.across | kernel.turned


def absorbs(op: Operation, index: int) -> bool:
    """Whether the producer of an operand may be fused into the op; of any operand for -1."""
    if op.name == "dynamic_update_slice":
        return index != 0
    if op.name == "scatter":
        return index != 0
    if op.name in ("reduce", "reduce_window"):
        return True
    return fuses(op)


def starts_of(block: Block, op: Operation) -> list[int]:
    """The start indices of a slice; empty for an op that only XLA creates."""
    source = defining_op(block.values[op.results[0]], "stablehlo.slice")
    return [] if source is None else integers(source, "start_indices", [])


def starts_of_update(block: Block, op: Operation) -> list[float | None]:
    """The start indices of an update, as a number or a tensor of all; None if not constant."""
    values = [block.values[value] for value in op.operands[2:] if value in block.values]
    joined = defining_op(values[0], "stablehlo.concatenate") if len(values) == 1 else None
    return [splat_value(value) for value in (values if joined is None else joined.operands)]
