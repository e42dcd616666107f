"""What control flow has in its blocks, read once for all searches for its factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from jaxlib.mlir import ir

from exla_opt.ir.walk import captured_values, operations_of, walk

from .block_flow import ControlFactor, State
from .factor import OpRule
from .traits import Trait, traits_of


class AsksFactor(Protocol):
    """The rule of control flow, asked by a block around it."""

    @property
    def values(self) -> list[ir.Value]:
        """The op's operands, and what its blocks capture behind them."""

    def factor_from(
        self, operands: Mapping[int, State], length: int, results: Mapping[int, State] | None = None
    ) -> ControlFactor:
        """The factor with which operands, captured ones included, and results are in these states. Raises Refused."""


@dataclass(frozen=True, slots=True)
class Content:
    """A block, read once for all searches through it: for every op what it reads and makes.

    numbers: which of the module's rules are those of its ops. operands: those captured by control flow behind its own.
    read: those captured by scalar code as well. place: by result, the op that makes it.
    """

    block: ir.Block
    ops: list[ir.Operation]
    numbers: list[int]
    operands: list[list[ir.Value]]
    read: list[list[ir.Value]]
    results: list[Sequence[ir.Value]]
    place: dict[ir.Value, int]


def count_ops(block: ir.Block) -> int:
    """How many ops a block has, with those of the control flow in it."""
    return sum(1 for _ in walk(block))


def read_content(block: ir.Block, first: int, rules: Sequence[OpRule]) -> Content:
    """The content of a block whose ops have the rules from number `first` on, in the order of `walk`."""
    made = Content(block, operations_of(block), [], [], [], [], {})
    for place, op in enumerate(made.ops):
        operands, results = list(op.operands), list(op.results)
        made.numbers.append(first)
        read = operands
        if Trait.CONTROL_FLOW in traits_of(op.name):
            operands = read = cast(AsksFactor, rules[first]).values
            first += sum(count_ops(inner) for region in op.regions for inner in region.blocks)
        elif len(op.regions):
            read = [*operands, *captured_values(op)]
        first += 1
        made.operands.append(operands)
        made.read.append(read)
        made.results.append(results)
        made.place.update(dict.fromkeys(results, place))
    return made


def captured_values_of(block: ir.Block) -> list[ir.Value]:
    """What a block reads from outside."""
    inside: set[ir.Value] = set(block.arguments)
    read: list[ir.Value] = []
    for op in operations_of(block):
        read += [*op.operands, *(captured_values(op) if len(op.regions) else ())]
        inside.update(op.results)
    return [value for value in read if value not in inside]
