"""The live ranges of a block's tensors: its kernels in order, the tensors alive at each, and the peak."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate
from operator import add

from exla_opt.ops.traits import Trait

from .block import Block, Operation
from .buffers import Buffers
from .copies import changed_places, place_carry, with_copies
from .effort import count
from .fusion import fuse
from .hoist import with_hoisted
from .machine import Machine
from .order import order_kernels
from .scratch import scratch_of, widened_before


class Run:
    """One block, kernel by kernel. Tensors in memory of others (a function's results) do not count.

    order: the kernels as they run, as positions in the block's ops; a step is an index in it.
    inputs: the tensors that the kernel of each op reads, as in `Fusion`.
    lives, scratches: for each step, the bytes alive, and the scratch bytes of its kernel on top of them.
    born, died: the first and the last step of each tensor computed here; a tensor that does not die is not in `died`.
    inner: the runs of the bodies of control flow, by step.
    updated: the tensors that must reuse the buffer of another, and that one.
    placed: the first tensor of each chain of updates in the buffer of a loop's carry while that is free.
    lent: the tensors in the buffer of a result that is not yet written.
    peak: the most bytes alive at once, without those given to the block.
    """

    def __init__(self, block: Block, machine: Machine, held: Collection[int] | None, outside: Collection[int] = ()):
        if held is None and block.arguments:
            block = block.copied()  # copies of the carry are added to it, and others run the same block
        if machine.breadth_first:
            block = with_hoisted(block)
            block = with_copies(block, frozenset(block.donated.values() if held is not None else block.arguments))
        count(len(block.ops))
        self.block = block
        self.machine = machine
        self.fusion = fuse(block, machine)
        # A loop's body leaves the tensors that it carries in the buffers of the loop.
        resident: Collection[int] = outside
        if held is None and block.arguments:
            resident = place_carry(self.fusion)
        self.resident = set(resident) if held is None and block.arguments else set()
        self.inputs = self.fusion.inputs
        self.loops: dict[int, Run] = {} if machine.breadth_first else self.run_loops()
        self.order = order_kernels(self.fusion, self.needed_inside(), block.arguments if held is None else ())
        self.buffers = Buffers(self.fusion, self.order)
        self.elsewhere: set[int] = self.buffers.with_updated(resident if held is None else held)
        self.mine: set[int] = set()
        self.placed: set[int] = set()
        self.lent: frozenset[int] = frozenset()
        self.live = self.peak = 0
        self.lives: list[int] = []
        self.scratches: list[int] = []
        self.born: dict[int, int] = {}
        self.died: dict[int, int] = {}
        self.inner: dict[int, list[Run]] = {}
        self.updated: dict[int, int] = {}

    def simulate(self) -> None:
        """Fill in the results step by step."""
        dying: dict[int, list[int]] = {}
        for value, step in self.buffers.last.items():
            dying.setdefault(step, []).append(value)
        for step, kernel in enumerate(self.order):
            op = self.block.ops[kernel]
            for value in self.results_made(op):
                self.mine.add(value)
                self.take_buffer(kernel, value, step)
                self.live += self.block.sizes[value]
                self.born[value] = step
            known = self.loops.get(kernel)
            self.inner[step] = [known] if known is not None else [self.run_body(op, body) for body in op.bodies]
            scratch = self.inside(step) if op.bodies else scratch_of(self.buffers, op, step, self.mine)
            scratch += sum(self.widened_before(op).values()) + op.scratch
            self.lives.append(self.live)
            self.scratches.append(scratch)
            self.peak = max(self.peak, self.live + scratch)
            for value in dying.get(step, ()):
                if value in self.mine:
                    self.live -= self.block.sizes[value]
                    self.mine.discard(value)
                    self.died[value] = step
        if self.resident and self.machine.breadth_first:
            self.free_carries()

    def free_carries(self) -> None:
        """Let other tensors use a loop carry's buffers between the last read of the old value and the new one."""
        gaps = []
        for old, new in zip(self.block.arguments, self.block.returned, strict=False):
            if new in self.resident and old != new:
                gaps.append((self.buffers.last.get(old, -1) + 1, self.first_written(new), self.block.sizes[old]))
        spans = []
        for chain in self.chains():
            last = max(max(self.died.get(value, len(self.order)), self.born[value]) for value in chain)
            spans.append((self.block.sizes[chain[0]], self.born[chain[0]], last, chain[0]))
        tenants: list[list[tuple[int, int]]] = [[] for _ in gaps]
        for size, born, died, head in sorted(spans, key=lambda span: (-span[0], span[1])):
            for (first, end, room), taken in zip(gaps, tenants, strict=True):
                if first <= born and died < end and size <= room and all(died < a or b < born for a, b in taken):
                    taken.append((born, died))
                    self.placed.add(head)
                    for step in range(born, died + 1):
                        self.lives[step] -= size
                    break
        self.peak = max(map(add, self.lives, self.scratches), default=0)

    def first_written(self, value: int) -> int:
        """The step that first writes the buffer of a tensor, through in-place updates; 0 for an argument's buffer."""
        step_of = {kernel: step for step, kernel in enumerate(self.order)}
        step = len(self.order)
        while value in self.fusion.producer:
            step = step_of[self.fusion.producer[value]]
            pairs = self.buffers.in_place(self.block.ops[self.order[step]])
            updated = [before for new, before in pairs if new == value and self.buffers.dies(before, step)]
            if not updated:
                return step
            value = updated[0]
        return 0

    def inside(self, step: int) -> int:
        """The bytes that the bodies of a step's op need on top of its results."""
        peak = max((inner.peak for inner in self.inner[step]), default=0)
        return max(peak - self.made_inside(self.block.ops[self.order[step]]), 0)

    def made_inside(self, op: Operation) -> int:
        """The bytes of the op's results that its bodies count themselves: those of a branch."""
        if not is_branch(op):
            return 0
        own = (value for value in op.results if value not in self.elsewhere and value not in self.lent)
        return sum(self.block.sizes[value] for value in own)

    def run_loops(self) -> dict[int, Run]:
        """The runs of loop bodies, which do not depend on the order of the ops around them."""
        found: dict[int, Run] = {}
        for position, op in enumerate(self.block.ops):
            if op.name == "while" and op.bodies and self.fusion.written[position]:
                found[position] = Run(op.bodies[0], self.machine, None)
                found[position].simulate()
        return found

    def needed_inside(self) -> dict[int, int]:
        """The bytes that loop bodies need, by the position of the loop."""
        return {kernel: run.peak for kernel, run in self.loops.items()}

    def run_body(self, op: Operation, body: Block) -> Run:
        """The run of one body of control flow."""
        returned = zip(body.returned, op.results, strict=False)
        run = Run(body, self.machine, None, [inner for inner, own in returned if own in self.elsewhere])
        run.simulate()
        return run

    def results_made(self, op: Operation) -> list[int]:
        """The op's results that use memory of this block."""
        results = list(op.results)
        if op.name == "while" and op.bodies:
            results = [op.results[place] for place in changed_places(op)]
        return [value for value in results if value not in self.elsewhere and value not in self.mine]

    def take_buffer(self, kernel: int, result: int, step: int) -> None:
        """Give the result the buffer of an operand that dies, if XLA does so."""
        sizes, op = self.block.sizes, self.block.ops[kernel]
        for value in self.buffers.reusable(kernel, result):
            if value in self.mine and self.buffers.last.get(value) == step and sizes[value] == sizes[result]:
                self.mine.discard(value)
                self.live -= sizes[value]
                self.died[value] = step - 1
                if Trait.IN_PLACE in op.traits:
                    self.updated[result] = value
                return

    def chains(self) -> list[list[int]]:
        """The tensors computed here, grouped by the buffer that they must share, in program order."""
        chain_of: dict[int, list[int]] = {}
        chains = []
        for value in self.born:
            if value in self.updated and self.updated[value] in chain_of:
                chain_of[value] = chain_of[self.updated[value]]
                chain_of[value].append(value)
            elif self.block.sizes[value]:
                chain_of[value] = [value]
                chains.append(chain_of[value])
        return chains

    def without(self, lent: Mapping[Run, Collection[int]], returned: Collection[int] = ()) -> None:
        """Stop counting these tensors of this run and of the runs inside it.

        returned: those of this run, a branch, that it returns into such memory.
        """
        change = [0] * (len(self.order) + 1)
        inside = [self.inside(step) for step in self.inner]
        chains = self.chains() if returned else ()
        shared = {value for chain in chains if not set(chain).isdisjoint(returned) for value in chain}
        self.lent = frozenset(lent.get(self, ())) | shared
        for value in self.lent:
            change[self.born.pop(value)] -= self.block.sizes[value]
            change[self.died.pop(value, len(self.order) - 1) + 1] += self.block.sizes[value]
        for step, (moved, inners) in enumerate(zip(accumulate(change), self.inner.values(), strict=False)):
            self.lives[step] += moved
            for inner in inners:
                inner.without(lent, self.returned_apart(self.block.ops[self.order[step]], inner))
            self.scratches[step] += self.inside(step) - inside[step]
        self.peak = max(map(add, self.lives, self.scratches), default=0)

    def returned_apart(self, op: Operation, inner: Run) -> list[int]:
        """What a body of a branch returns into memory of others."""
        if not is_branch(op):
            return []
        return [value for value, own in zip(inner.block.returned, op.results, strict=False) if own in self.lent]

    def widened_before(self, op: Operation) -> dict[int, int]:
        """The tensors that are widened before a loop that reads slices of them, with the bytes of the copies."""
        return widened_before(self.buffers, op)


def is_branch(op: Operation) -> bool:
    """Whether only one of the op's bodies runs, and computes the op's results."""
    return bool(op.bodies) and op.name != "while"
