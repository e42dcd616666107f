"""Row normalisations that XLA:GPU turns into one kernel before it fuses anything else.

A diamond: a tensor, its rows reduced and broadcast again, and an elementwise op on both; between them are only ops of
one operand, or of one and a number. The rule is that of XLA's SoftmaxRewriterTriton.
"""

from __future__ import annotations

from collections.abc import Collection

from exla_opt.ops.traits import Trait

from ..block import Block, Operation

_BINARY = 2
# Longer rows are not normalised by one kernel.
_LONGEST_ROW = 2**14


class Diamonds:
    """Finds the diamonds of a block.

    producer: the op of each tensor, by position. kept: the tensors that must be written.
    """

    def __init__(self, block: Block, producer: dict[int, int], kept: Collection[int], used: list[bool]):
        self.block, self.ops, self.producer, self.kept = block, block.ops, producer, kept
        self.readers: dict[int, int] = {}
        for op, is_used in zip(self.ops, used, strict=True):
            for value in {*op.operands, *op.captures} if is_used else ():
                self.readers[value] = self.readers.get(value, 0) + 1

    def find(self) -> dict[int, list[int]]:
        """For the op that closes each diamond, the ops inside, readers first, all by position."""
        found = {}
        for position, op in enumerate(self.ops):
            if Trait.POINTWISE in op.traits and len(op.operands) == _BINARY and len(op.results) == 1:
                inside = self.closed_by(op)
                if inside:
                    found[position] = sorted(inside, reverse=True)
        return found

    def closed_by(self, op: Operation) -> set[int]:
        """The ops inside the diamond that an op closes; empty if it closes none."""
        straight, spread = op.operands
        inside, value = self.way_back(spread, "broadcast_in_dim")
        if not self.is_named(value, "broadcast_in_dim"):
            return set()
        rows, value = self.way_back(self.operand(value), "reduce")
        place = self.producer.get(value, -1)
        if not self.is_named(value, "reduce") or not self.is_over_rows(self.ops[place]):
            return set()
        before, origin = self.way_back(self.operand(value), "")
        other, reached = self.way_back(straight, "")
        if reached != origin:
            return set()
        spreads = {self.producer[self.last_of(spread, inside)]}
        return inside | spreads | rows | {place} | before | other

    def way_back(self, value: int, name: str) -> tuple[set[int], int]:
        """The ops on the path from a tensor back through trivial ops, and the tensor where the path ends."""
        passed: set[int] = set()
        while self.is_alone(value):
            position = self.producer[value]
            op = self.ops[position]
            if op.name == name or Trait.POINTWISE not in op.traits or len(op.results) != 1:
                break
            large = [each for each in dict.fromkeys(op.operands) if not self.is_number(each)]
            if len(large) != 1:
                break
            passed.add(position)
            [value] = large
        return passed, value

    def last_of(self, value: int, passed: Collection[int]) -> int:
        """The tensor at the end of a path of these ops."""
        while self.producer.get(value) in passed:
            op = self.ops[self.producer[value]]
            [value] = [each for each in dict.fromkeys(op.operands) if not self.is_number(each)]
        return value

    def is_alone(self, value: int) -> bool:
        return value in self.producer and self.readers.get(value) == 1 and value not in self.kept

    def is_named(self, value: int, name: str) -> bool:
        return self.is_alone(value) and self.ops[self.producer[value]].name == name

    def operand(self, value: int) -> int:
        return self.ops[self.producer[value]].operands[0]

    def is_over_rows(self, op: Operation) -> bool:
        short = len(op.lengths) == 1 and op.together == 1 and op.lengths[0] <= _LONGEST_ROW
        return short and len(op.results) == 1

    def is_number(self, value: int) -> bool:
        """Whether a tensor has one value everywhere."""
        op = self.ops[self.producer[value]] if value in self.producer else None
        if op is None or op.name == "splat":
            return op is not None
        return op.name == "broadcast_in_dim" and not self.block.shapes[op.operands[0]]
