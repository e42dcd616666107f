"""The memory of a block between its loops, with some plans or with none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from exla_opt.memory.block import Operation
from exla_opt.memory.machine import Machine
from exla_opt.memory.schedule import run_block
from exla_opt.ops.traits import Trait

from ..graph import Graph
from .loop_plan import LoopPlan
from .plan import Plan
from .planned_block import PlannedBlock


@dataclass(frozen=True, slots=True)
class BlockRun:
    """A simulated block with some plans.

    peak: the most bytes alive at once. needed: the bytes at each step. born, died: the steps of each tensor, by its
    number in the block, as in `Run`. number: by tensor of the graph, that of the block.
    """

    peak: int
    needed: Sequence[int]
    born: Mapping[int, int]
    died: Mapping[int, int]
    number: Mapping[int, int]

    def peak_without(self, graph: Graph, positions: Collection[int], vanished: Collection[int]) -> int:
        """The most bytes alive while none of these tensors is alive, and no op at these positions runs.

        With plans that remove them, the block needs no less.
        """
        last = len(self.needed) - 1
        changes = [0] * (last + 2)
        for position in positions:
            for value in graph.nodes[position].results:
                born = self.born.get(self.number[value]) if value in self.number else None
                if born is not None:
                    changes[born] += 1
                    changes[(self.died.get(self.number[value], last) if value in vanished else born) + 1] -= 1
        steps = zip(accumulate(changes), self.needed, strict=False)
        left = max((most for touched, most in steps if not touched), default=0)
        # A GPU's buffers are laid out in one block, which may be larger than what is alive.
        return left * self.peak // max(self.needed, default=1) if left else 0


def peak_before(graph: Graph, plan: Plan, machine: Machine) -> int:
    """The predicted peak of the plan's own ops when they run unsplit, for comparison with the plan's."""
    planned = PlannedBlock(graph, machine)
    for position in sorted(plan.tiled):
        planned.add_node(graph.nodes[position], {})
    outputs = {graph.nodes[output.node].results[output.result] for loop in plan.loops for output in loop.stage.outputs}
    # While an argument is read that a result will overwrite, the result has no buffer of its own for its operands.
    overwritten = {graph.nodes[node].results[result] for loop in plan.loops for node, result in loop.overwritten}
    overwritten &= graph.overwritten.keys()
    held = {planned.of(value) for value in (outputs & graph.returned) - overwritten}
    return run_block(planned.block(planned.of(value) for value in outputs), machine, held=held).peak


def run_planned(graph: Graph, plans: Sequence[Plan], machine: Machine, slice_bytes: int) -> BlockRun:
    """The predicted live tensors between the loops of a block when `plans` are built.

    The memory inside a loop's body is left out: that depends on the tile, and every plan can limit it. Loops of the
    program, in tiles or not, take their carries and slices of the rest.
    """
    placed: dict[int, list[LoopPlan]] = {}
    dropped: set[int] = set()
    tiled: set[int] = set()
    for plan in plans:
        dropped |= _dropped(graph, plan)
        tiled |= plan.tiled.keys()
        for loop in plan.loops:
            placed.setdefault(max(loop.stage.nodes), []).append(loop)
    dropped |= _made_of_nothing(graph, dropped | tiled)
    planned = PlannedBlock(graph, machine, lambda bodies: bodies.bytes_once_cut(slice_bytes))
    for node in graph.nodes:
        if node.position not in dropped and node.position != graph.terminator:
            planned.add_node(node, {})
        for loop in placed.get(node.position, ()):
            _add_loop(planned, graph, loop)
    planned.ops = _in_order(planned.ops)
    block = planned.block([planned.of(value) for value in graph.nodes[graph.terminator].operands])
    run = run_block(block, machine, held=block.returned)
    needed = [live + scratch for live, scratch in zip(run.lives, run.scratches, strict=True)]
    return BlockRun(run.peak, needed, run.born, run.died, planned.number)


def _add_loop(planned: PlannedBlock, graph: Graph, loop: LoopPlan) -> None:
    """Add a loop as one op, from its inputs to its outputs."""
    results = {graph.nodes[output.node].results[output.result] for output in loop.stage.outputs}
    inside = {value for position in loop.stage.nodes for value in graph.nodes[position].results}
    reads = {value for position in loop.stage.nodes for value in graph.nodes[position].operands}
    # What an earlier loop stored is read even if this one computes slices of it again.
    outside = {value for value in reads - inside | loop.stage.awaited if not loop.stage.is_own(value)}
    operands, numbers = (tuple(planned.of(value) for value in sorted(some)) for some in (outside, results))
    planned.ops.append(Operation("loop", Trait.CONTROL_FLOW, operands, numbers, scratch=loop.scratch))


def _dropped(graph: Graph, plan: Plan) -> set[int]:
    """The tiled ops whose original is erased: all but the cheap ones that others read as well."""
    written = {(output.node, output.result) for loop in plan.loops for output in loop.stage.outputs}
    dropped: set[int] = set()
    for position in sorted(plan.tiled, reverse=True):
        node = graph.nodes[position]
        kept = any(
            (position, index) not in written and user not in dropped and user not in plan.tiled
            for index, value in enumerate(node.results)
            for user, _ in graph.tensors[value].users
        )
        if not kept:
            dropped.add(position)
    return dropped


def _made_of_nothing(graph: Graph, readers: set[int]) -> set[int]:
    """The ops that depend on no tensor, such as those of masks, and whose results only `readers` read.

    The loops will compute them, tile by tile.
    """
    found: set[int] = set()
    for node in graph.nodes:
        makes = Trait.GENERATES in node.traits or bool(node.traits & (Trait.POINTWISE | Trait.MOVES))
        if makes and all(graph.tensors[value].producer in found for value in node.operands):
            found.add(node.position)
    kept: set[int] = set()
    for position in sorted(found, reverse=True):
        users = {user for value in graph.nodes[position].results for user, _ in graph.tensors[value].users}
        if any(user in kept or user not in found for user in users - readers):
            kept.add(position)
    return found - kept


def _in_order(ops: list[Operation]) -> list[Operation]:
    """The ops ordered so that every tensor is computed before it is read, otherwise in their old order."""
    producer = {value: index for index, op in enumerate(ops) for value in op.results}
    placed = [False] * len(ops)
    order: list[int] = []
    for index in range(len(ops)):
        stack = [index]
        while stack:
            current = stack[-1]
            producers = (producer.get(value, current) for value in ops[current].operands)
            missing = [index for index in producers if index != current and not placed[index]]
            if placed[current] or not missing:
                stack.pop()
                if not placed[current]:
                    placed[current] = True
                    order.append(current)
                continue
            stack += missing
    return [ops[index] for index in order]
