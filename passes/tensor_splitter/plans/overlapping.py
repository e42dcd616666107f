"""Plans that go on where tiles overlap: along space, through convolutions and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from exla_opt.ops.rules import DimMapping, Factor
from exla_opt.options import Options

from ..graph import Graph, Node
from ..regions.growth import grow
from ..regions.loops import Refusal, find_loops
from ..regions.region import Region
from .plan import Plan, make_plan

# A network that goes down to a 32nd of an image's rows is cut in steps of 32.
_MOST_DOUBLED = 6


class OverlappingPlans:
    """The plans of one block whose tiles overlap, each found once. is_big, allowed: as for `grow`."""

    def __init__(
        self,
        graph: Graph,
        options: Options,
        is_big: Callable[[int], bool],
        allowed: Callable[[Node, Factor], bool],
        work: dict[int, float],
    ):
        self.graph = graph
        self.options = options
        self.is_big = is_big
        self.allowed = allowed
        self.work = work
        self.known: dict[tuple[int, DimMapping], Plan | None] = {}

    def of(self, value: int, mappings: Sequence[DimMapping]) -> list[Plan]:
        """The plans that cut `value` along some of its mappings, or in steps of several elements of them."""
        steps = [step for mapping in mappings for step in self.coarser(value, mapping)]
        found = [(mapping, self.plan_for(value, mapping)) for mapping in steps]
        return [replace(plan, seed=value, mapping=mapping) for mapping, plan in found if plan is not None]

    def plan_for(self, value: int, mapping: DimMapping) -> Plan | None:
        """The plan that cuts `value` along `mapping` and goes on where tiles overlap, if something does."""
        key = (value, mapping)
        if key not in self.known:
            region = self.region_of(value, mapping)
            plan = self.plan_of(region) if region.reaches() else None
            for other, its in region.mappings.items():
                if other == value or (plan is not None and other in plan.vanished):
                    self.known.setdefault((other, its), plan)
        return self.known[key]

    def region_of(self, value: int, mapping: DimMapping) -> Region:
        return grow(self.graph, value, mapping, self.is_big, self.allowed, overlaps=True)

    def coarser(self, value: int, mapping: DimMapping) -> Iterator[DimMapping]:
        """The mapping and, while a region that overlaps so reaches more ops, steps of twice as many elements.

        What is cut with a tensor at half its resolution is cut in steps of two of its rows.
        """
        reached = 0
        for _ in range(_MOST_DOUBLED):
            region = self.region_of(value, mapping)
            if not region.reaches() or len(region.tiled) <= reached:
                return
            yield mapping
            if mapping.length % 2:
                return
            reached = len(region.tiled)
            mapping = replace(mapping, length=mapping.length // 2, inner=mapping.inner * 2)

    def plan_of(self, region: Region) -> Plan | None:
        """The plan of a region, if there is one with which its seed is gone."""
        loops = find_loops(self.graph, region, self.is_big, self.work)
        if isinstance(loops, Refusal) or region.seed not in loops.vanished:
            return None
        plan = make_plan(self.graph, region, loops, self.options.slice_bytes, self.is_big, self.options.machine)
        return None if isinstance(plan, Refusal) else plan
