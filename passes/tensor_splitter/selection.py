"""The plans of one round: which of them can be built together."""

from __future__ import annotations

from bisect import bisect_left, insort

from .comparisons import asks
from .graph import Graph
from .plan import Plan

Interval = tuple[int, int]


class Selection:
    """The plans of a block that are selected so far, by their seeds, in that order."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.plans: dict[int, Plan] = {}
        self._computing: dict[int, set[int]] = {}  # by position of an op: the seeds of the plans whose loops run it
        self._intervals: list[Interval] = []  # sorted; no two meet

    def add(self, plan: Plan) -> bool:
        """Take one more plan if it can be built in the same round as those before; returns whether it was.

        A plan that runs all the ops of an earlier one, and leaves nothing whole that is gone with it, takes its place.
        """
        computes = _computes(plan)
        rivals = [self.plans[seed] for seed in sorted(set().union(*(self._computing.get(op, ()) for op in computes)))]
        others = [rival for rival in rivals if not (_computes(rival) <= computes and rival.vanished <= plan.vanished)]
        # Two loops that make the same value could answer a question for equality differently.
        if any(asks(self.graph.nodes[op].op) for rival in others for op in computes | _computes(rival)):
            return False
        replaced = [rival for rival in rivals if rival not in others]
        for rival in replaced:
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


def _computes(plan: Plan) -> frozenset[int]:
    """The positions of the ops that the loops of a plan run in the place of the originals."""
    return frozenset(op for loop in plan.loops for op in loop.stage.nodes) - plan.copies


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
