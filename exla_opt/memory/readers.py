"""Which ops of a block read the results of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .block import Block


def reads_of(block: Block, producer: Mapping[int, int]) -> tuple[list[set[int]], list[bool]]:
    """For each op of a block the ops that read its results, and whether it runs even if none does."""
    returned = set(block.returned)
    readers: list[set[int]] = [set() for _ in block.ops]
    for position, op in enumerate(block.ops):
        for value in (*op.operands, *op.captures):
            if value in producer:
                readers[producer[value]].add(position)
    return readers, [not returned.isdisjoint(op.results) or op.name == "custom_call" for op in block.ops]


def drop_reads(block: Block, producer: Mapping[int, int], readers: Sequence[set[int]], position: int) -> None:
    """Remove the reads of an op that nothing reads."""
    for value in (*block.ops[position].operands, *block.ops[position].captures):
        if value in producer:
            readers[producer[value]].discard(position)


def drop_dead(block: Block, producer: Mapping[int, int], readers: Sequence[set[int]], stays: Sequence[bool]) -> None:
    """Remove the reads of all ops that nothing reads."""
    for position in range(len(block.ops) - 1, -1, -1):
        if not readers[position] and not stays[position]:
            drop_reads(block, producer, readers, position)
