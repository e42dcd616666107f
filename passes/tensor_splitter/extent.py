"""Extents: a region may be one layer's attention, or everything that the same factor reaches.

The small extent cuts the big tensors and what lies between them. The large one follows the factor through
small tensors too: over the batch dimension it turns a whole training step into one loop that accumulates its
gradients, and every saved activation shrinks with it. Which is better is decided by the predicted peak of the block.
"""

from __future__ import annotations

from collections.abc import Sequence

from exla_opt.memory.block import Operation
from exla_opt.memory.machine import Machine
from exla_opt.memory.schedule import run_block
from exla_opt.ops.traits import Trait

from .body import PlannedBlock
from .graph import Graph
from .plan import LoopPlan, Plan


def block_peak(graph: Graph, plans: Sequence[Plan], machine: Machine) -> int:
    """The predicted peak of what is alive between the loops of a block when `plans` are built.

    What a loop's body needs is left out: that is a question of the tile, which every plan can answer.
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
    planned = PlannedBlock(graph, machine)
    for node in graph.nodes:
        if node.position not in dropped and node.position != graph.terminator:
            planned.add_node(node, {})
        for loop in placed.get(node.position, ()):
            _add_loop(planned, graph, loop)
    planned.ops = _in_order(planned.ops)
    block = planned.block([planned.of(value) for value in graph.nodes[graph.terminator].operands])
    return run_block(block, machine, held=block.returned).peak


def _add_loop(planned: PlannedBlock, graph: Graph, loop: LoopPlan) -> None:
    """A loop as one op: what it reads, and what it brings out."""
    results = {graph.nodes[output.node].results[output.result] for output in loop.stage.outputs}
    inside = {value for position in loop.stage.nodes for value in graph.nodes[position].results}
    reads = {value for position in loop.stage.nodes for value in graph.nodes[position].operands}
    operands, numbers = (tuple(planned.of(value) for value in sorted(some)) for some in (reads - inside, results))
    planned.ops.append(Operation("loop", Trait.CONTROL_FLOW, operands, numbers))


def _dropped(graph: Graph, plan: Plan) -> set[int]:
    """The tiled ops whose original goes: all but the cheap ones that someone else reads as well."""
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
    """The ops that need no tensor at all, as those of a mask, and whose results are read by `readers` alone.

    The loops will make them for themselves, tile by tile.
    """
    found: set[int] = set()
    for node in graph.nodes:
        makes = Trait.GENERATES in node.traits or bool(node.traits & (Trait.POINTWISE | Trait.MOVES))
        if makes and all(graph.tensors[value].producer in found for value in node.operands):
            found.add(node.position)
    kept: set[int] = set()
    for position in sorted(found, reverse=True):
        users = {user for value in graph.nodes[position].results for user, _ in graph.tensors[value].users}
        if not users <= readers | (found - kept):
            kept.add(position)
    return found - kept


def _in_order(ops: list[Operation]) -> list[Operation]:
    """The ops in an order in which every tensor is made before it is read, else as they stand."""
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
