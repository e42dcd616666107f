"""The contents of the blocks of control flow, read once for all searches for its factors."""

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
    """The rule of control flow, as queried by a block around it."""

    @property
    def values(self) -> list[ir.Value]:
        """The op's operands, followed by the captures of its blocks."""

    def factor_from(
        self, operands: Mapping[int, State], length: int, results: Mapping[int, State] | None = None
    ) -> ControlFactor:
        """The factor for operands, captured ones included, and results in these states. Raises Refused."""


@dataclass(frozen=True, slots=True)
class Content:
    """A block, read once for all searches through it: the operands and results of every op.

    numbers: of its ops' rules among the module's. operands: followed by the captures of control flow.
    read: including the captures of scalar code. place: by result, the position of its op.
    """

    block: ir.Block
    ops: list[ir.Operation]
    numbers: list[int]
    operands: list[list[ir.Value]]
    read: list[list[ir.Value]]
    results: list[Sequence[ir.Value]]
    place: dict[ir.Value, int]


def count_ops(block: ir.Block) -> int:
    """The number of ops in a block, including those of nested control flow."""
    return sum(1 for _ in walk(block))


def read_content(block: ir.Block, first: int, rules: Sequence[OpRule]) -> Content:
    """The contents of a block whose ops have the rules from number `first` on, in the order of `walk`."""
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
    """The values that a block captures."""
    inside: set[ir.Value] = set(block.arguments)
    read: list[ir.Value] = []
    for op in operations_of(block):
        read += [*op.operands, *(captured_values(op) if len(op.regions) else ())]
        inside.update(op.results)
    return [value for value in read if value not in inside]
