"""Selects the ways to cut a tensor, and the plans that can be built in one round.

Extents: a region may be one layer's attention, or everything that the same factor reaches. The small extent cuts the
big tensors and the ops between them. The large one follows the factor through small tensors too: over the batch
dimension it turns a training step into one loop that accumulates its gradients, and every saved activation shrinks with
it. The predicted peak of the block decides.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from functools import cache

from exla_opt.ops.comparisons import asks_inside
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph, Node
from .plan import Plan

# The maximum number of tensors searched for the sources of an elementwise function.
_MOST_STEPS = 32
_LOOP = Trait.CONTROL_FLOW | Trait.IN_PLACE
# Concatenations, whose operands have the dimensions of the result.
_JOINS = Trait.MOVES | Trait.NEW_BLOCK


def candidate_mappings(graph: Graph, value: int) -> list[DimMapping]:
    """The ways to cut one tensor: each dim, and the coarser steps that a neighbouring reshape needs.

    Elementwise ops, and concatenations of operands, may be between the tensor and its producers or readers. Loops are
    not queried: they can be cut in any steps, and a query would search their bodies.
    """
    tensor = graph.tensors[value]
    made_by = [(graph.nodes[graph.tensors[each].producer], each) for each in _elementwise_sources(graph, value)]
    steps = [(node, each) for node, each in made_by if Trait.CONTROL_FLOW not in node.traits]
    readers = [(node, index) for node, index in _behind_maps(graph, value) if Trait.CONTROL_FLOW not in node.traits]
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
    """The sources of which a tensor is an elementwise function or a concatenation, a limited number of ops back."""
    rank = len(graph.tensors[value].type.shape)
    found, known, queue = [], {value}, [value]
    while queue:
        current = queue.pop()
        tensor = graph.tensors[current]
        if tensor.producer == OUTSIDE:
            continue
        node = graph.nodes[tensor.producer]
        joins = _JOINS in node.traits and Trait.IN_PLACE not in node.traits
        if not (joins or Trait.POINTWISE in node.traits) or len(known) > _MOST_STEPS:
            found.append(current)
            continue
        shapes = {each: graph.tensors[each].type.shape for each in node.operands}
        same = [
            each
            for each, shape in shapes.items()
            if each not in known and (len(shape) == rank if joins else shape == tensor.type.shape)
        ]
        known.update(same)
        queue += same
    return found


def _behind_maps(graph: Graph, value: int) -> list[tuple[Node, int]]:
    """The first readers of one tensor, or of elementwise functions of it, with the operand number.

    A loop may compute the words of a draw elementwise, step by step: then the readers of its result count.
    """
    shape = graph.tensors[value].type.shape
    found: list[tuple[Node, int]] = []
    known, queue = {value}, [value]
    while queue:
        for user, index in graph.tensors[queue.pop()].users:
            if index < 0:
                continue
            node = graph.nodes[user]
            made = node.results[index : index + 1] if _LOOP in node.traits else node.results
            if not (_LOOP in node.traits or Trait.POINTWISE in node.traits) or len(known) > _MOST_STEPS:
                found.append((node, index))
                continue
            same = [each for each in made if graph.tensors[each].type.shape == shape and each not in known]
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
        """Add a plan if it can be built in the same round as those before; return whether it was added.

        A plan that removes all that an earlier one removes, by the same ops, replaces it. Other ops that the earlier
        one has in its loops, such as small ones on arguments only, then run before the loops. A later plan of the same
        tensor, such as one that overwrites a carry, replaces the earlier one too.
        """
        computes = _computes(plan)
        rivals = [self.plans[seed] for seed in sorted(set().union(*(self._computing.get(op, ()) for op in computes)))]
        others = [each for each in rivals if not _covers(self.graph, plan, each)]
        # Two loops that compute the same value could get different results of an equality test.
        if any(self._asks(op) for rival in others for op in computes | _computes(rival)):
            return False
        for rival in (replaced := [rival for rival in rivals if rival not in others]):
            self._remove(rival)
        if any(map(self._meets, _intervals(plan))):
            for rival in replaced:
                self._insert(rival)
            return False
        if plan.seed in self.plans:
            self._remove(self.plans[plan.seed])
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
    """The plans with several replaced by one of the `known`, if that takes neither longer nor more memory."""
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
    """The predicted seconds of all plans: a plan recomputes in each tile its inputs that another one removes."""
    seconds = sum(plan.seconds for plan in plans)
    for plan in plans:
        made = {value for position in plan.tiled for value in graph.nodes[position].results}
        read = {value for position in plan.tiled for value in graph.nodes[position].operands} - made
        again = sum(other.seconds for other in plans if not read.isdisjoint(other.vanished))
        seconds += again * max(loop.trips for loop in plan.loops)
    return seconds


def _owners(plans: Sequence[Plan]) -> dict[int, int]:
    """By tensor, the position of the plan that removes it."""
    return {value: place for place, plan in enumerate(plans) for value in plan.vanished}


def _computes(plan: Plan) -> frozenset[int]:
    """The positions of the ops that the loops of a plan run instead of the originals."""
    return frozenset(op for loop in plan.loops for op in loop.stage.nodes) - plan.copies


def _covers(graph: Graph, plan: Plan, rival: Plan) -> bool:
    """Whether a plan removes all that another one removes, by the same ops."""
    gone = rival.vanished
    if not gone <= plan.vanished:
        return False
    ops = _computes(rival)
    handled = {op for op in ops if not gone.isdisjoint((*graph.nodes[op].operands, *graph.nodes[op].results))}
    return handled.issubset(op for loop in plan.loops for op in loop.stage.nodes)


def _intervals(plan: Plan) -> list[Interval]:
    """For every loop the positions from the first op whose result leaves it to its last op; overlapping ones merged.

    Loops whose intervals are disjoint can be built together: a loop's inputs are before its last op, and its readers
    after the first op of its interval, so no path leads from one to the other and back.
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
