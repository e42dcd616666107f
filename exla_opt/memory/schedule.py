"""Runs a block in the mind: the order of its kernels, what is alive at each, and the most of it.

XLA:CPU runs a block's kernels in the order in which they become ready, first in, first out; a GPU runs them in program
order. A tensor is freed after its last reader. Fitted to XLA's own buffer assignment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from math import prod

from exla_opt.ops.traits import Trait

from .block import Block, Operation
from .fusion import Fusion, fuse, is_short
from .machine import Machine

# A matrix of at most so many rows is solved at once; a larger one block by block, into a second buffer.
_SOLVED_AT_ONCE = 128
# The bytes of a float32: the type in which narrower floats are multiplied, and bfloat16 summed, by some machines.
_WIDE = 4


def _order(fusion: Fusion) -> list[int]:
    """The kernels in the order in which they run."""
    kernels = [position for position, written in enumerate(fusion.written) if written]
    if not fusion.machine.breadth_first:
        return kernels
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
        self.block = block
        self.machine = machine
        self.fusion = fuse(block, machine)
        self.inputs = self.fusion.inputs
        self.order = _order(self.fusion)
        self.last = {value: step for step, kernel in enumerate(self.order) for value in self.inputs[kernel]}
        self.last.update(dict.fromkeys(block.returned, len(self.order)))
        self.elsewhere: set[int] = set() if held is None else self.with_updated(held)
        # A body's arguments are its loop's buffers: they come back when they die, for others to use.
        self.mine: set[int] = set(block.arguments) if held is None else set()
        self.start = sum(block.sizes[value] for value in self.mine)
        self.live = self.most = self.start
        self.lives: list[int] = []
        self.scratches: list[int] = []
        self.born: dict[int, int] = {}
        self.died: dict[int, int] = {}
        self.inner: dict[int, list[Run]] = {}

    @property
    def peak(self) -> int:
        """The most bytes alive at once, beyond those that the block was given."""
        return self.most - self.start

    def with_updated(self, held: Collection[int]) -> set[int]:
        """These tensors, and those that became one of them by updates in place."""
        found = set(held)
        for step in range(len(self.order) - 1, -1, -1):
            op = self.block.ops[self.order[step]]
            if Trait.IN_PLACE in op.traits or op.name == "while":
                pairs = zip(op.results, op.operands, strict=False)
                found.update(old for new, old in pairs if new in found and self.dies(old, step))
        return found

    def dies(self, value: int, step: int) -> bool:
        """Whether a tensor of this block is last read in this step, so that its buffer is free for another."""
        producer = self.fusion.producer.get(value)
        made_here = producer is not None and self.block.ops[producer].name not in ("constant", "splat")
        return made_here and self.last.get(value) == step

    def simulate(self) -> None:
        dying: dict[int, list[int]] = {}
        for value, step in self.last.items():
            dying.setdefault(step, []).append(value)
        if self.machine.breadth_first:
            self.fill_early()
        for step, kernel in enumerate(self.order):
            op = self.block.ops[kernel]
            made = [value for value in op.results if value not in self.elsewhere]
            if op.name == "while" and op.bodies:
                made = [value for value in _changed(op) if value not in self.elsewhere]
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

    def fill_early(self) -> None:
        """A loop that starts from a constant: XLA:CPU makes the constant's copy as soon as the block begins."""
        producer = self.fusion.producer
        for kernel in self.order:
            op = self.block.ops[kernel]
            if op.name != "while":
                continue
            for old, new in zip(op.operands, op.results, strict=True):
                if old in producer and self.block.ops[producer[old]].name == "splat" and new not in self.elsewhere:
                    self.mine.add(new)
                    self.live += self.block.sizes[new]
                    self.born[new] = 0

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
        elif op.name in ("sort", "cholesky"):
            found = op.operands
        elif Trait.POINTWISE in op.traits:
            found = [value for value, straight in self.inputs[kernel].items() if straight]
        else:
            return ()
        return [value for value in found if not self.is_column_major(value) and not self.is_product_on_gpu(value)]

    def is_product_on_gpu(self, value: int) -> bool:
        producer = self.fusion.producer.get(value)
        return self.machine.workspace > 0 and producer is not None and self.block.ops[producer].name == "dot_general"

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
        if op.name == "triangular_solve" and op.lengths[0] > _SOLVED_AT_ONCE:
            return sizes[op.results[0]]
        if op.name != "dot_general":
            return 0
        copied = {op.operands[side] for side in op.copied}
        copied |= {value for value in op.operands if self.is_column_major(value)}
        return sum(sizes[value] for value in copied - op.narrow) + self.widened(op, step)


def _changed(loop: Operation) -> list[int]:
    """The results of a loop, without those that its body returns as it got them."""
    body = loop.bodies[0]
    carried = zip(loop.results, body.returned, body.arguments, strict=True)
    return [value for value, new, old in carried if new != old]


def run_block(block: Block, machine: Machine, held: Collection[int] | None = None) -> Run:
    """The finished run of a block.

    held: those of the tensors that the block returns which lie in somebody else's memory, as all results of a function
    do; None for a body of control flow, whose arguments and results lie in the buffers of its op.
    """
    run = Run(block, machine, held)
    run.simulate()
    return run
