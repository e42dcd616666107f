"""Limits the arithmetic that all splits of a module add, over all rounds: nested loops multiply recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.loops import trip_count
from exla_opt.memory.machine import Machine
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.remarks import Reason

from ..graph import Graph
from ..regions.loops import TOO_MANY_LOOPS, Refusal
from .body import work_of

# After splitting, a module may do at most this many times its original arithmetic. Programs that are split well stay
# below 2.5; 6 times the arithmetic takes about 10 times as long, as its products are smaller as well.
MOST_ARITHMETIC = 6.0


class Allowance:
    """The seconds of arithmetic that may still be added to a module.

    Arithmetic counts alike for products of any size: slices are compared with the tensors that they are cut from.
    """

    def __init__(self, graphs: Sequence[Graph], machine: Machine):
        """graphs: of all blocks of the module as it came."""
        self.machine = machine
        self.most = MOST_ARITHMETIC * _arithmetic(graphs, machine)
        self.graphs = graphs
        self.left: float | None = None

    def start(self, graphs: Sequence[Graph]) -> None:
        """Measure the current module. graphs: of all its blocks."""
        self.graphs, self.left = graphs, None

    def allows(self, block: ir.Block, seconds: float) -> bool:
        """Whether each run of a block may take this many seconds more, or less."""
        return seconds <= 0 or seconds * runs_of(block) <= self.rest()

    def take(self, block: ir.Block, seconds: float) -> bool:
        """Let each run of a block take this many seconds more, or less, if allowed; return whether it is."""
        allowed = self.allows(block, seconds)
        if allowed:
            self.left = self.rest() - seconds * runs_of(block)
        return allowed

    def rest(self) -> float:
        """The seconds that are left, computed on demand, as most rounds change nothing."""
        if self.left is None:
            self.left = self.most - _arithmetic(self.graphs, self.machine)
        return self.left


def refuse_dear() -> Refusal:
    """Why a tensor stays whose split would have the module compute too much again."""
    return Refusal(Reason(TOO_MANY_LOOPS, "with the loops around it, it would recompute too much"))


def _arithmetic(graphs: Sequence[Graph], machine: Machine) -> float:
    """The seconds of the arithmetic of all functions, loops once per trip."""
    return sum(sum(work_of(graph, machine, any_shape=True).values()) for graph in graphs if not graph.nested)


def runs_of(block: ir.Block) -> int:
    """How often a block runs; a loop with an unknown trip count counts as one trip."""
    runs = 1
    for op in around(block):
        if has_trait(op, Trait.IN_PLACE):
            runs *= trip_count(op) or 1
    return runs


def around(block: ir.Block) -> Iterator[ir.Operation]:
    """The control flow around a block, from the inside out."""
    op = block.owner.operation
    while has_trait(op, Trait.CONTROL_FLOW):
        yield op
        op = op.block.owner.operation
