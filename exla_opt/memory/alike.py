"""Blocks that are alike are simulated once: the loops planned for equal layers, and for one layer by several attempts.

Two blocks are alike if their ops are, on tensors of the same numbers, shapes and types. A planned loop numbers its
tensors from 0, so the loops of equal layers are alike wherever they stand in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import fields
from hashlib import sha256
from marshal import dumps
from operator import attrgetter
from typing import TypeVar

from .block import Block, Operation
from .fusion import fuse
from .machine import Machine
from .schedule import run_block

_Result = TypeVar("_Result")

# All are forgotten when there are more.
_MOST = 4096
# The version of marshal in which equal tuples are equal bytes.
_WITHOUT_REFERENCES = 2
# What a planned block consists of, ops first, and what only a block that was read from IR has.
_OF_PLANNED_BLOCKS = ("ops", "shapes", "sizes", "dtypes", "returned")
_OF_READ_BLOCKS = tuple(each.name for each in fields(Block) if each.name not in _OF_PLANNED_BLOCKS)
# Traits are compared by their number; a block with bodies is not compared at all.
_NOT_COMPARED = ("traits", "bodies", "outside")
_facts = attrgetter("traits.value", *(each.name for each in fields(Operation) if each.name not in _NOT_COMPARED))
_peaks: dict[Hashable, int] = {}
_written: dict[Hashable, frozenset[int]] = {}


def peak_of(block: Block, machine: Machine, held: Collection[int]) -> int:
    """The peak of a block's run, in bytes. held: as in `run_block`."""
    return _known(_peaks, block, (machine, frozenset(held)), lambda: run_block(block, machine, held=held).peak)


def written_in(block: Block, machine: Machine) -> frozenset[int]:
    """The tensors that a block writes to memory, if no reader takes up a sum that a CPU's library computes."""
    return _known(_written, block, machine, lambda: frozenset(fuse(block, machine, sums_alone=True).tensors()))


def _known(known: dict[Hashable, _Result], block: Block, other: Hashable, compute: Callable[[], _Result]) -> _Result:
    likeness = _likeness(block)
    if likeness is None:
        return compute()
    key = (likeness, other)
    if key not in known:
        if len(known) >= _MOST:
            known.clear()
        known[key] = compute()
    return known[key]


def _likeness(block: Block) -> bytes | None:
    """Equal for blocks that are alike; None for a block that was read from IR, or contains others."""
    if any(getattr(block, name) for name in _OF_READ_BLOCKS) or any(op.bodies for op in block.ops):
        return None
    facts = (tuple(map(_facts, block.ops)), *(tuple(getattr(block, name)) for name in _OF_PLANNED_BLOCKS[1:]))
    return sha256(dumps(facts, _WITHOUT_REFERENCES)).digest()
