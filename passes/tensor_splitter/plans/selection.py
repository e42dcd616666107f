"""Which plans are worth a thought and which go together: the ways to cut a tensor, what a block takes then, a round.

Extents: a region may be one layer's attention, or everything that the same factor reaches. The small extent cuts the
big tensors and what lies between them. The large one follows the factor through small tensors too: over the batch
dimension it turns a whole training step into one loop that accumulates its gradients, and every saved activation
shrinks with it. Which is better is decided by the predicted peak of the block.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.memory.block import Operation
from exla_opt.memory.machine import Machine
from exla_opt.memory.schedule import run_block
from exla_opt.ops.comparisons import asks_inside
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph
from .body import PlannedBlock, bodies_of
from .plan import LoopPlan, Plan

# So many tensors are looked at for what an elementwise function is computed of.
_MOST_STEPS_BACK = 32


def candidate_mappings(graph: Graph, value: int) -> list[DimMapping]:
    """The ways to cut one tensor: each dim, and the coarser steps that a neighbouring reshape asks for.

    Between the tensor and what it is made by may stand elementwise ops. Loops are not asked: they are cut in any steps,
    and the question takes a walk through their bodies.
    """
    tensor = graph.tensors[value]
    made_by = [(graph.nodes[graph.tensors[each].producer], each) for each in _elementwise_sources(graph, value)]
    steps = [(node, each) for node, each in made_by if Trait.CONTROL_FLOW not in node.traits]
    readers = [
        (graph.nodes[user], index)
        for user, index in tensor.users
        if index >= 0 and Trait.CONTROL_FLOW not in graph.nodes[user].traits
    ]
    mappings = []
    for dim, size in enumerate(tensor.type.shape):
        if size < 2:
            continue
        inners = {1}
        for node, each in steps:
            index = graph.tensors[each].result_index
            made = node.rule.at_result(index, dim)
            if made and (mapping := made.results[index]):
                inners.add(mapping.inner)
        for node, index in readers:
            read = node.rule.at_operand(index, dim)
            if read and (mapping := read.operands[index]):
                inners.add(mapping.inner)
        mappings += [
            DimMapping(dim, size // inner, inner) for inner in sorted(inners) if size % inner == 0 and size > inner
        ]
    return mappings


def _elementwise_sources(graph: Graph, value: int) -> list[int]:
    """The tensors of which one is computed element by element, as far back as ops are elementwise; or some steps."""
    shape = graph.tensors[value].type.shape
    found, known, queue = [], {value}, [value]
    while queue:
        current = queue.pop()
        producer = graph.tensors[current].producer
        if producer == OUTSIDE:
            continue
        node = graph.nodes[producer]
        if Trait.POINTWISE not in node.traits or len(known) > _MOST_STEPS_BACK:
            found.append(current)
            continue
        same = [each for each in node.operands if graph.tensors[each].type.shape == shape and each not in known]
        known.update(same)
        queue += same
    return found


Interval = tuple[int, int]


class Selection:
    """The plans of a block that are selected so far, by their seeds, in that order."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.plans: dict[int, Plan] = {}
        self._computing: dict[int, set[int]] = {}  # by position of an op: the seeds of the plans whose loops run it
        self._intervals: list[Interval] = []  # sorted; no two meet
        self._asks = cache(lambda position: asks_inside(graph.nodes[position].op))

    def add(self, plan: Plan) -> bool:
        """Take one more plan if it can be built in the same round as those before; returns whether it was.

        A plan with which all is gone that is gone with an earlier one, by the same ops, takes its place. What else
        the earlier one computed in its loops, as what is small and made of arguments alone, is computed before them.
        """
        computes = _computes(plan)
        rivals = [self.plans[seed] for seed in sorted(set().union(*(self._computing.get(op, ()) for op in computes)))]
        others = [each for each in rivals if not _covers(self.graph, plan, each)]
        # Two loops that make the same value could answer a question for equality differently.
        if any(self._asks(op) for rival in others for op in computes | _computes(rival)):
            return False
        for rival in (replaced := [rival for rival in rivals if rival not in others]):
            self._remove(rival)
        if any(map(self._meets, _intervals(plan))):
            for rival in replaced:
                self._insert(rival)
            return False
        self._insert(plan)
        return True

    def _insert(self, plan: Plan) -> None:
        self.plans[plan.seed] = plan
        for interval in _intervals(plan):
            insort(self._intervals, interval)
        for op in _computes(plan):
            self._computing.setdefault(op, set()).add(plan.seed)

    def _remove(self, plan: Plan) -> None:
        del self.plans[plan.seed]
        for interval in _intervals(plan):
            del self._intervals[bisect_left(self._intervals, interval)]
        for op in _computes(plan):
            self._computing[op].remove(plan.seed)

    def _meets(self, interval: Interval) -> bool:
        place = bisect_left(self._intervals, interval)
        before = self._intervals[place - 1 : place] if place else []
        near = before + self._intervals[place : place + 1]
        return any(interval[0] <= stop and start <= interval[1] for start, stop in near)


def join_plans(graph: Graph, plans: Sequence[Plan], known: Iterable[Plan], slice_bytes: int) -> list[Plan]:
    """The plans with one of the `known` in the place of several, where it takes neither longer nor more memory."""
    best = list(plans)
    owner = _owners(best)
    for plan in {id(plan): plan for plan in known}.values():
        places = {owner[value] for value in plan.vanished if value in owner}
        replaced = [best[place] for place in sorted(places) if best[place].vanished <= plan.vanished]
        if len(replaced) < 2 or plan.seconds > _seconds_together(graph, replaced):
            continue
        if plan.rank(slice_bytes)[:2] > max(each.rank(slice_bytes)[:2] for each in replaced):
            continue
        selected = Selection(graph)
        joined = [plan, *(each for each in best if each not in replaced)]
        if all(selected.add(each) for each in joined) and len(selected.plans) == len(joined):
            best, owner = joined, _owners(joined)
    return best


def _seconds_together(graph: Graph, plans: Sequence[Plan]) -> float:
    """The predicted seconds of all plans: a plan recomputes in each tile what it reads and is gone with another one."""
    seconds = sum(plan.seconds for plan in plans)
    for plan in plans:
        made = {value for position in plan.tiled for value in graph.nodes[position].results}
        read = {value for position in plan.tiled for value in graph.nodes[position].operands} - made
        again = sum(other.seconds for other in plans if not read.isdisjoint(other.vanished))
        seconds += again * max(loop.trips for loop in plan.loops)
    return seconds


def _owners(plans: Sequence[Plan]) -> dict[int, int]:
    """By tensor the place of the plan with which it is gone."""
    return {value: place for place, plan in enumerate(plans) for value in plan.vanished}


def _computes(plan: Plan) -> frozenset[int]:
    """The positions of the ops that the loops of a plan run in the place of the originals."""
    return frozenset(op for loop in plan.loops for op in loop.stage.nodes) - plan.copies


def _covers(graph: Graph, plan: Plan, rival: Plan) -> bool:
    """Whether with a plan all is gone that is gone with another, by the same ops."""
    gone = rival.vanished
    if not gone <= plan.vanished:
        return False
    ops = _computes(rival)
    handled = {op for op in ops if not gone.isdisjoint((*graph.nodes[op].operands, *graph.nodes[op].results))}
    return handled.issubset(op for loop in plan.loops for op in loop.stage.nodes)


def _intervals(plan: Plan) -> list[Interval]:
    """For every loop the positions from the first op whose result leaves it to its last op; what overlaps, as one.

    Loops whose intervals are disjoint can be built together: what a loop reads stands before its last op, and
    what reads it stands behind the first op of its interval, so no path leads from one to the other and back.
    """
    found: list[Interval] = []
    for loop in plan.loops:
        outputs = [output.node for output in loop.stage.outputs]
        found.append((min(outputs), max(set(loop.stage.nodes) - plan.copies | set(outputs))))
    merged: list[Interval] = []
    for start, stop in sorted(found):
        if merged and start <= merged[-1][1]:
            start, stop = merged[-1][0], max(stop, merged.pop()[1])
        merged.append((start, stop))
    return merged


def block_peak(graph: Graph, plans: Sequence[Plan], machine: Machine, slice_bytes: int) -> int:
    """The predicted peak of what is alive between the loops of a block when `plans` are built.

    What a loop's body needs is left out: that is a question of the tile, which every plan can answer. Loops of the
    program, in tiles or not, take what they carry and slices of the rest.
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
            if node.name in CONTROL_FLOW:
                scratch = bodies_of(graph, node, machine).bytes_once_cut(slice_bytes)
                planned.ops[-1] = replace(planned.ops[-1], scratch=scratch)
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
    planned.ops.append(Operation("loop", Trait.CONTROL_FLOW, operands, numbers, scratch=loop.scratch))


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
