"""Which ops a machine fuses into their readers, and which tensors it writes to memory.

Rules fitted to XLA's own buffer assignment; pure functions over `Block`: nothing here uses the IR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from exla_opt.ops.traits import Trait

from .block import Block, Operation, fuses, is_short
from .gpu.joins import Joins
from .gpu.priority_fusion import PriorityFusion
from .greedy import Greedy
from .machine import Machine

# The maximum number of tensors that a kernel reads: an op that would exceed it is written instead.
_MOST_INPUTS = 64
# The number of kernels that contain an op: none, the one of this number, or several.
_NO_ROOT, _MANY_ROOTS = -1, -2


@dataclass(slots=True)
class Fusion:
    """For every op of a block: whether it is written to memory, and the ops that it is fused into.

    producer: the op of each tensor. An op that is neither written nor fused is dead.
    inputs: for every op, the tensors that its kernel reads, through the ops fused into it; True for those that are only
    read element by element all the way.
    joined: the groups of ops whose kernels are one kernel with several results.
    tuples: the tensors that are written together with others, so that nothing else may use their buffers.
    waits: the kernels that one must wait for although it reads nothing of them.
    viewed: the tensors that are only read in another shape, by a bitcast at the end of the kernel that writes them.
    """

    block: Block
    machine: Machine
    producer: dict[int, int] = field(default_factory=dict)
    written: list[bool] = field(default_factory=list)
    into: list[frozenset[int]] = field(default_factory=list)
    inputs: list[dict[int, bool]] = field(default_factory=list)
    joined: list[list[int]] = field(default_factory=list)
    tuples: set[int] = field(default_factory=set)
    waits: dict[int, list[int]] = field(default_factory=dict)
    viewed: set[int] = field(default_factory=set)

    def tensors(self) -> set[int]:
        """The tensors that are written to memory."""
        ops = zip(self.block.ops, self.written, strict=True)
        return {value for op, is_written in ops if is_written for value in op.results}


def fuse(block: Block, machine: Machine, sums_alone: bool = False) -> Fusion:
    """Decide for every op of a block, readers first; then find the tensors that each kernel reads.

    sums_alone: whether no reader takes up a sum of floats that a CPU's library computes.
    """
    decision = _Decision(block, machine, sums_alone)
    if machine.repeats_cheap:
        fusion = decision.fusion
        greedy = Greedy(block, machine, fusion.producer, [decision.fusible(op) for op in block.ops])
        greedy.run()
        fusion.written, fusion.inputs, fusion.viewed = greedy.written, greedy.inputs, greedy.viewed
        return fusion
    if machine.kind == "gpu":
        fusion = decision.fusion
        able = [decision.fusible(op) or op.name == "reduce_window" for op in block.ops]
        priority = PriorityFusion(block, machine, fusion.producer, able)
        priority.run()
        fusion.written, fusion.inputs = priority.written, priority.inputs
        for position, op in enumerate(block.ops):
            if not priority.written[position]:
                users = (use for value in op.results for use in decision.users.get(value, ()))
                fusion.into[position] = frozenset(user for user, index in users if index >= 0 and priority.used[user])
        joins = Joins(priority)
        fusion.joined = [left for group in joins.find() if len(left := _left(fusion, joins.after, group)) > 1]
        fusion.tuples = {value for each in fusion.joined for place in each for value in block.ops[place].results}
        return fusion
    for position in range(len(block.ops) - 1, -1, -1):
        decision.decide(position)
    _read_inputs(decision.fusion)
    return decision.fusion


def _left(fusion: Fusion, after: list[dict[int, None]], group: list[int]) -> list[int]:
    """Of joined kernels, those that still write: a tensor that only the others read stays inside.

    after: the readers of each kernel's results.
    """
    kept = []
    for position in sorted(group):
        [value] = fusion.block.ops[position].results
        readers = after[position].keys()
        if not readers or not readers <= set(group) or value in fusion.block.returned:
            kept.append(position)
            continue
        fusion.written[position] = False
        fusion.into[position] = frozenset(readers)
        for reader in readers:
            read = fusion.inputs[reader]
            straight = read.pop(value, True)
            for other, own in fusion.inputs[position].items():
                read[other] = read.get(other, True) and own and straight
    return kept


def _read_inputs(fusion: Fusion) -> None:
    for position, op in enumerate(fusion.block.ops):
        elementwise = Trait.POINTWISE in op.traits
        read: dict[int, bool] = dict.fromkeys(op.captures, False)
        for value in op.operands:
            producer = fusion.producer.get(value)
            if producer is not None and position in fusion.into[producer]:
                through = fusion.inputs[producer]
                if len(read) + len(through) <= _MOST_INPUTS:
                    for other, straight in through.items():
                        read[other] = read.get(other, True) and straight and elementwise
                    continue
                fusion.written[producer] = True
            read[value] = read.get(value, True) and elementwise
        fusion.inputs.append(read)


class _Decision:
    def __init__(self, block: Block, machine: Machine, sums_alone: bool):
        count = len(block.ops)
        self.sums_alone = sums_alone
        self.block = block
        self.machine = machine
        self.fusion = Fusion(block, machine, {}, [False] * count, [frozenset()] * count, viewed=block.viewed)
        self.root = [_NO_ROOT] * count
        self.users: dict[int, list[tuple[int, int]]] = {}
        self.returned = set(block.returned)
        for position, op in enumerate(block.ops):
            for value in op.results:
                self.fusion.producer[value] = position
        if machine.repeats_cheap:
            return  # `Greedy` decides
        for position, op in enumerate(block.ops):
            for index, value in enumerate(op.operands):
                self.users.setdefault(value, []).append((position, index))
            for value in op.captures:
                self.users.setdefault(value, []).append((position, -1))

    def decide(self, position: int) -> None:
        op, fusion = self.block.ops[position], self.fusion
        uses = [use for result in op.results for use in self.users.get(result, ())]
        uses = [(user, index) for user, index in uses if fusion.written[user] or fusion.into[user]]
        returned = not self.returned.isdisjoint(op.results)
        if not uses and not returned and op.name != "custom_call":
            return
        absorbing = frozenset(user for user, index in uses if self.absorbs(user, index))
        everywhere = not returned and all(self.absorbs(user, index) for user, index in uses)
        root = _NO_ROOT
        for user in absorbing:
            root = _united(root, self.root[user])
        fused = self.fusible(op) and everywhere and self.may_be_repeated(op, absorbing, root)
        written = not fused
        fusion.written[position] = written
        if fused:
            fusion.into[position] = absorbing
            self.root[position] = root
        if written:
            self.root[position] = _united(self.root[position], position)

    def absorbs(self, user: int, index: int) -> bool:
        """Whether the producer of this operand may be fused into its reader."""
        op = self.block.ops[user]
        if index < 0:
            return False
        if op.name == "reduce":
            return is_short(op, self.machine)
        if op.name == "dynamic_update_slice":
            return index == 1
        return fuses(op)

    def fusible(self, op: Operation) -> bool:
        if op.name == "reduce":
            return len(op.results) == 1 and is_short(op, self.machine) and not (self.sums_alone and op.is_library)
        return fuses(op)

    def may_be_repeated(self, op: Operation, users: frozenset[int], root: int) -> bool:
        """Whether the op is cheap enough to be recomputed in every kernel and for every element that reads it."""
        if op.name == "reduce" and op.name in self.machine.cheap:
            return root == _NO_ROOT or (root != _MANY_ROOTS and self.block.ops[root].name != "reduce")
        if Trait.EXPENSIVE not in op.traits or op.name in self.machine.cheap:
            return True
        return root != _MANY_ROOTS and not any(self.spreads(user) for user in users)

    def spreads(self, user: int) -> bool:
        op, shapes = self.block.ops[user], self.block.shapes
        return op.name == "broadcast_in_dim" and prod(shapes[op.results[0]]) > prod(shapes[op.operands[0]])


def _united(one: int, other: int) -> int:
    if _NO_ROOT in (one, other) or one == other:
        return max(one, other) if _MANY_ROOTS not in (one, other) else _MANY_ROOTS
    return _MANY_ROOTS
