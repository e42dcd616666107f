"""What XLA fuses into its readers, and what it writes to memory: rules fitted to XLA's own buffer assignment.

Pure functions over `program.Block`: nothing here touches IR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from .program import Block, Operation

EXPENSIVE = frozenset(
    "exponential log log_plus_one exponential_minus_one tanh logistic power sqrt rsqrt cbrt sine cosine tan erf erfc "
    "erf_inv lgamma digamma atan2 remainder divide gather reduce".split()
)
# On a GPU these are cheap enough to be computed once for each reader.
_CHEAP_ON_GPU = frozenset("sqrt rsqrt cbrt divide remainder gather reduce".split())
_FREE = frozenset("broadcast_in_dim iota splat constant".split())
MOVES = _FREE | frozenset("transpose slice dynamic_slice concatenate pad gather reverse".split())
ELEMENTWISE = frozenset(
    "abs add and atan2 bitcast_convert cbrt ceil clamp compare complex convert cosine count_leading_zeros divide "
    "exponential exponential_minus_one floor imag is_finite log log_plus_one logistic map maximum minimum multiply "
    "negate not or popcnt power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select "
    "shift_left shift_right_arithmetic shift_right_logical sign sine sqrt square subtract tan tanh xor erf erfc "
    "erf_inv lgamma digamma".split()
)
# XLA:CPU makes a chain of reduce-windows of a longer reduction, and those do not fuse.
LONGEST_FUSED_REDUCTION = 32


def is_short(op: Operation) -> bool:
    """Whether XLA:CPU keeps a reduce as one op."""
    return len(op.results) > 1 or all(length <= LONGEST_FUSED_REDUCTION for length in op.lengths)


@dataclass(slots=True)
class Fusion:
    """For every op of a block: whether it is written to memory, and the ops that it is fused into.

    maker: the op of each tensor. An op that is neither written nor fused is dead.
    """

    block: Block
    gpu: bool
    maker: dict[int, int] = field(default_factory=dict)
    written: list[bool] = field(default_factory=list)
    into: list[frozenset[int]] = field(default_factory=list)

    def inputs(self) -> list[frozenset[int]]:
        """For every op the tensors that its kernel reads, through what is fused into it."""
        found: list[frozenset[int]] = []
        for position, op in enumerate(self.block.ops):
            read: set[int] = set(op.captures)
            for value in op.operands:
                maker = self.maker.get(value)
                if maker is not None and position in self.into[maker]:
                    read |= found[maker]
                else:
                    read.add(value)
            found.append(frozenset(read))
        return found


def fuse(block: Block, gpu: bool) -> Fusion:
    """Decide for every op of a block, readers first."""
    return _Decision(block, gpu).run()


class _Decision:
    def __init__(self, block: Block, gpu: bool):
        count = len(block.ops)
        self.block = block
        self.fusion = Fusion(block, gpu, {}, [False] * count, [frozenset()] * count)
        self.roots: list[frozenset[int]] = [frozenset()] * count
        self.users: dict[int, list[tuple[int, int]]] = {}
        self.returned = set(block.returned)
        for position, op in enumerate(block.ops):
            self.fusion.maker.update(dict.fromkeys(op.results, position))
            for index, value in enumerate(op.operands):
                self.users.setdefault(value, []).append((position, index))
            for value in op.captures:
                self.users.setdefault(value, []).append((position, -1))

    def run(self) -> Fusion:
        for position in range(len(self.block.ops) - 1, -1, -1):
            self.decide(position)
        return self.fusion

    def decide(self, position: int) -> None:
        op, fusion = self.block.ops[position], self.fusion
        uses = [use for result in op.results for use in self.users.get(result, ())]
        uses = [(user, index) for user, index in uses if fusion.written[user] or fusion.into[user]]
        returned = not self.returned.isdisjoint(op.results)
        if not uses and not returned and op.name != "custom_call":
            return
        absorbing = frozenset(user for user, index in uses if self.absorbs(user, index))
        everywhere = not returned and all(self.absorbs(user, index) for user, index in uses)
        roots = frozenset[int]().union(*(self.roots[user] for user in absorbing))
        fused = self.fusible(op) and everywhere and self.may_be_repeated(op, absorbing, roots)
        written = not fused
        if written and self.fusible(op) and not fusion.gpu and op.name not in EXPENSIVE and self.reads_one(op):
            fused = True  # written for those who need it, and made again by the others
        fusion.written[position] = written
        if fused:
            fusion.into[position] = absorbing
            self.roots[position] = roots
        if written:
            self.roots[position] |= {position}

    def absorbs(self, user: int, index: int) -> bool:
        """Whether the producer of this operand may become a part of its reader."""
        op = self.block.ops[user]
        if index < 0:
            return False
        if op.name == "reduce":
            return self.fusion.gpu or is_short(op)
        if op.name == "dynamic_update_slice":
            return index == 1
        return op.name in MOVES or op.name in ELEMENTWISE

    def fusible(self, op: Operation) -> bool:
        if op.name == "reduce":
            return len(op.results) == 1 and (self.fusion.gpu or is_short(op))
        return op.name in MOVES or op.name in ELEMENTWISE

    def may_be_repeated(self, op: Operation, users: frozenset[int], roots: frozenset[int]) -> bool:
        """Whether the op is cheap enough to be computed once for every kernel and element that reads it."""
        gpu = self.fusion.gpu
        if op.name == "reduce" and gpu:
            return len(roots) <= 1 and all(self.block.ops[root].name != "reduce" for root in roots)
        if op.name not in EXPENSIVE or (gpu and op.name in _CHEAP_ON_GPU):
            return True
        return len(roots) <= 1 and not any(self.spreads(user) for user in users)

    def spreads(self, user: int) -> bool:
        op, shapes = self.block.ops[user], self.block.shapes
        return op.name == "broadcast_in_dim" and prod(shapes[op.results[0]]) > prod(shapes[op.operands[0]])

    def reads_one(self, op: Operation) -> bool:
        """Whether the op reads at most one tensor of its own rank that is in memory."""
        shapes, maker = self.block.shapes, self.fusion.maker
        rank = len(shapes[op.results[0]])
        big = [value for value in set(op.operands) if len(shapes[value]) == rank]
        return sum(value not in maker or self.block.ops[maker[value]].name not in _FREE for value in big) <= 1
