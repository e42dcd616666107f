"""Runs a block in the mind: the order of its kernels, what is alive at each, and the most of it.

XLA:CPU runs a block's kernels in the order in which they become ready, first in, first out; a GPU runs them in program
order. A tensor is freed after its last reader. Fitted to XLA's own buffer assignment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import prod

from exla_opt.ops.traits import Trait

from .block import Block, Operation
from .copies import changed_places, place_carry, with_copies
from .fusion import Fusion, fuse, is_short
from .hoist import with_hoisted
from .machine import Machine

# A matrix of at most so many rows is solved at once; a larger one block by block, into a second buffer.
_SOLVED_AT_ONCE = 128
# The bytes of a float32: the type in which narrower floats are multiplied, and bfloat16 summed, by some machines.
_WIDE = 4
# So many results, the largest, lend their buffers to so many tensors.
_MOST_BUFFERS, _MOST_LENT = 8, 2000


def _order(fusion: Fusion) -> list[int]:
    """The kernels in the order in which they run."""
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if not fusion.machine.breadth_first:
        return sorted(kernels, key=lambda kernel: fusion.block.ops[kernel].name != "copy")
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ready: deque[int] = deque()
    for kernel in kernels:
        read = [fusion.producer[value] for value in sorted(fusion.inputs[kernel]) if value in fusion.producer]
        waiting[kernel] = len(read)
        for producer in read:
            readers.setdefault(producer, []).append(kernel)
        if not read:
            ready.append(kernel)
    order: list[int] = []
    while ready:
        kernel = ready.popleft()
        order.append(kernel)
        for reader in readers.get(kernel, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order


class Run:
    """One block, kernel by kernel. What somebody else holds (a function's results) counts for nothing.

    order: the kernels as they run, as places in the block's ops; a step is a place in it.
    lives, scratches: for each step the bytes alive, and those that the kernel needs beside them while it runs.
    born, died: the first and the last step of each tensor made here; what does not die is not in the latter.
    inner: the runs of the bodies of control flow, by step.
    """

    def __init__(self, block: Block, machine: Machine, held: Collection[int] | None):
        if machine.breadth_first:
            block = with_hoisted(block)
            block = with_copies(block, frozenset() if held is not None else frozenset(block.arguments))
        self.block = block
        self.machine = machine
        self.fusion = fuse(block, machine)
        # A branch leaves its results in the buffers of its op, a loop's body what it carries in those of the loop.
        resident: Collection[int] = ()
        if held is None:
            resident = place_carry(self.fusion) if block.arguments else block.returned
        self.inputs = self.fusion.inputs
        self.order = _order(self.fusion)
        self.last = {value: step for step, kernel in enumerate(self.order) for value in self.inputs[kernel]}
        self.last.update(dict.fromkeys(block.returned, len(self.order)))
        self.spans: dict[int, tuple[int, int]] = {}
        self.elsewhere: set[int] = self.with_updated(resident if held is None else held)
        if held is not None:
            self.elsewhere |= self.lent(held)
        self.mine: set[int] = set()
        self.live = self.most = 0
        self.lives: list[int] = []
        self.scratches: list[int] = []
        self.born: dict[int, int] = {}
        self.died: dict[int, int] = {}
        self.inner: dict[int, list[Run]] = {}

    @property
    def peak(self) -> int:
        """The most bytes alive at once, beyond those that the block was given."""
        return self.most

    def with_updated(self, held: Collection[int]) -> set[int]:
        """These tensors, those that became one of them by updates in place, and those that were there before."""
        found = set(held)
        for step in range(len(self.order) - 1, -1, -1):
            op = self.block.ops[self.order[step]]
            found.update(old for new, old in self.in_place(op) if new in found and self.dies(old, step))
        return found

    def in_place(self, op: Operation) -> list[tuple[int, int]]:
        """The results of an op with the operands whose buffers they take, if nobody reads those later."""
        if op.name == "while":
            return list(zip(op.results, op.operands, strict=False))
        if Trait.IN_PLACE in op.traits or (op.name == "sort" and self.machine.sorts_in_place):
            return [
                (new, old)
                for new, old in zip(op.results, op.operands, strict=False)
                if self.block.sizes[new] == self.block.sizes[old]
            ]
        if op.name == "custom_call":
            return [(new, old) for new, old in zip(op.results, op.operands, strict=False) if self.has_type_of(old, new)]
        return []

    def lent(self, held: Collection[int]) -> set[int]:
        """The tensors that lie in the buffer of a result before that is written, largest first."""
        sizes, step_of = self.block.sizes, {kernel: step for step, kernel in enumerate(self.order)}
        born = {
            value: step_of[position]
            for value, position in self.fusion.producer.items()
            if position in step_of and self.block.ops[position].name not in ("constant", "splat")
        }
        buffers = self.buffers(held, born)
        chained = {
            value
            for op in self.block.ops
            if op.name == "while" or Trait.IN_PLACE in op.traits
            for value in (*op.results, *op.operands[: len(op.results)])
        }
        wanted = [value for value in born if value not in self.elsewhere and value not in chained and sizes[value]]
        found: set[int] = set()
        self.spans = {value: (born[value], self.last.get(value, born[value])) for value in born}
        occupied = [[value] for _, _, value in buffers]
        for _, first, value in buffers:
            self.spans[value] = (first, len(self.order))
        for value in sorted(wanted, key=lambda value: (-sizes[value], born[value]))[:_MOST_LENT]:
            for (size, _, _), taken in zip(buffers, occupied, strict=True):
                if sizes[value] <= size and all(self.are_apart(value, other) for other in taken):
                    taken.append(value)
                    found.add(value)
                    break
        return found

    def buffers(self, held: Collection[int], born: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """The largest buffers of results: the bytes of each, the step from which it is needed, and the result."""
        first = {value: born[value] for value in self.elsewhere if value in born}
        for step, kernel in enumerate(self.order):
            for new, old in self.in_place(self.block.ops[kernel]):
                if new in first and old in first and self.dies(old, step):
                    first[new] = min(first[new], first[old])
        sizes = self.block.sizes
        found = sorted(((sizes[value], first[value], value) for value in set(held) if value in first), reverse=True)
        return found[:_MOST_BUFFERS]

    def are_apart(self, one: int, other: int) -> bool:
        """Whether one buffer serves two tensors: one is dead before the other is born, or is written over by it."""
        (first, last), (begin, end) = self.spans[one], self.spans[other]
        if last < begin or end < first:
            return True
        if last == begin:
            return self.writes_over(one, other, begin)
        return end == first and self.writes_over(other, one, first)

    def writes_over(self, old: int, new: int, step: int) -> bool:
        kernel = self.order[step]
        op = self.block.ops[kernel]
        return new in op.results and old in self.reusable(op, kernel, new)

    def dies(self, value: int, step: int) -> bool:
        """Whether a tensor of this block is last read in this step, so that its buffer is free for another."""
        producer = self.fusion.producer.get(value)
        made_here = producer is not None and self.block.ops[producer].name not in ("constant", "splat")
        return made_here and self.last.get(value) == step

    def simulate(self) -> None:
        dying: dict[int, list[int]] = {}
        for value, step in self.last.items():
            dying.setdefault(step, []).append(value)
        for step, kernel in enumerate(self.order):
            op = self.block.ops[kernel]
            made = [value for value in op.results if value not in self.elsewhere]
            if op.name == "while" and op.bodies:
                made = [op.results[place] for place in changed_places(op)]
                made = [value for value in made if value not in self.elsewhere]
            made = [value for value in made if value not in self.mine]
            self.mine.update(made)
            for value in made:
                self.take_buffer(op, kernel, value, step)
                self.live += self.block.sizes[value]
                self.born[value] = step
            self.inner[step] = [run_block(body, self.machine) for body in op.bodies]
            scratch = max((run.peak for run in self.inner[step]), default=self.scratch(op, step))
            scratch += self.widened_before(op) + op.scratch
            self.lives.append(self.live)
            self.scratches.append(scratch)
            self.most = max(self.most, self.live + scratch)
            for value in dying.get(step, ()):
                if value in self.mine:
                    self.live -= self.block.sizes[value]
                    self.mine.discard(value)
                    self.died[value] = step

    def take_buffer(self, op: Operation, kernel: int, result: int, step: int) -> None:
        """Give the result the buffer of an operand that dies, where XLA does so."""
        size = self.block.sizes[result]
        for value in self.reusable(op, kernel, result):
            if value in self.mine and self.last.get(value) == step and self.block.sizes[value] == size:
                self.mine.discard(value)
                self.live -= size
                self.died[value] = step - 1
                return

    def reusable(self, op: Operation, kernel: int, result: int) -> Collection[int]:
        index = op.results.index(result)
        if op.name == "while":
            return op.operands[index : index + 1]
        if op.name == "custom_call":
            return op.operands
        if Trait.IN_PLACE in op.traits:
            found: Collection[int] = op.operands[:1]
        elif op.name == "cholesky" or (op.name == "sort" and self.machine.sorts_in_place):
            found = op.operands
        elif Trait.POINTWISE in op.traits:
            found = [
                value
                for value, straight in self.inputs[kernel].items()
                if straight
                and self.has_type_of(value, result)
                and result not in self.block.viewed
                and not self.comes_from_loop(value)
            ]
        else:
            return ()
        return [value for value in found if not self.is_column_major(value) and not self.is_product_on_gpu(value)]

    def has_type_of(self, one: int, other: int) -> bool:
        """Whether two tensors have the same shape and element type."""
        shapes, dtypes = self.block.shapes, self.block.dtypes
        same = shapes[one] == shapes[other] and dtypes[one] == dtypes[other]
        return same and one not in self.block.merged

    def is_product_on_gpu(self, value: int) -> bool:
        producer = self.fusion.producer.get(value)
        if value in self.fusion.tuples:
            return True
        return self.machine.workspace > 0 and producer is not None and self.block.ops[producer].name == "dot_general"

    def comes_from_loop(self, value: int) -> bool:
        """Whether a loop has carried the tensor: its buffer is not written over by other kernels."""
        producer = self.fusion.producer.get(value)
        return producer is not None and self.block.ops[producer].name == "while" and self.machine.breadth_first

    def is_column_major(self, value: int) -> bool:
        """Whether LAPACK wrote the tensor, in an order of elements that others do not have."""
        producer = self.fusion.producer.get(value)
        return producer is not None and self.block.ops[producer].name == "custom_call"

    def widened_before(self, op: Operation) -> int:
        """The bytes of what XLA:CPU widens before a loop that reads slices of it: twice those of the narrow floats."""
        if op.name != "while" or not self.machine.widens:
            return 0
        # What an outer loop captures is widened before that one.
        own = (value for value in op.narrow if value in self.fusion.producer or value in self.block.arguments)
        return sum(2 * self.block.sizes[value] for value in own)

    def widened(self, op: Operation, step: int) -> int:
        """The bytes of the float32 tensors that XLA:CPU makes of narrower ones for this op, if not in their place."""
        needed = 0
        for value in op.narrow:
            in_place = value in self.mine and (value in op.results or self.last.get(value) == step)
            needed += _WIDE * prod(self.block.shapes[value]) - (self.block.sizes[value] if in_place else 0)
        return needed

    def scratch(self, op: Operation, step: int) -> int:
        """The bytes that an op without bodies needs only while it runs."""
        sizes, machine = self.block.sizes, self.machine
        if machine.kind != "cpu":
            workspace = machine.workspace if op.name == "dot_general" else 0
            return sum(sizes[op.operands[side]] for side in op.copied) + workspace
        if op.name == "reduce" and not is_short(op, machine):
            first = op.operands[0]
            size = _WIDE * prod(self.block.shapes[first]) if first in op.narrow else sizes[first]
            window = prod(min(machine.longest_fused_reduction or n, n) for n in op.lengths)
            partial = size // max(window, 1)
            return partial + self.widened(op, step)
        if op.name == "triangular_solve":
            if len(self.block.shapes[op.operands[0]]) > 2:
                return sizes[op.operands[0]] + sizes[op.results[0]]
            return sizes[op.results[0]] if op.lengths[0] > _SOLVED_AT_ONCE else 0
        if op.name == "custom_call":
            wanted = {op.operands[side] for side in op.copied}
            wanted -= {old for _, old in self.in_place(op)}
            return sum(sizes[value] for value in wanted if value not in self.fusion.producer)
        if op.name != "dot_general":
            return 0
        copied = {op.operands[side] for side in op.copied}
        copied |= {value for value in op.operands if self.is_column_major(value)}
        return sum(sizes[value] for value in copied - op.narrow) + self.widened(op, step)


def run_block(block: Block, machine: Machine, held: Collection[int] | None = None) -> Run:
    """The finished run of a block.

    held: those of the tensors that the block returns which lie in somebody else's memory, as all results of a function
    do; None for a body of control flow, whose arguments and results lie in the buffers of its op.
    """
    run = Run(block, machine, held)
    run.simulate()
    return run
