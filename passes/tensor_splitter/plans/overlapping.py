"""Plans with overlapping tiles: along space, through convolutions and windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from exla_opt.ops.rules import DimMapping, Factor
from exla_opt.ops.shifts import may_shift
from exla_opt.options import Options

from ..graph import Graph, Node, updates_carry, updates_in_place
from ..regions.growth import grow, is_seam
from ..regions.loops import Refusal, find_loops
from ..regions.region import Region
from .plan import Plan, make_plan
from .slices import slice_bytes_of

# A network that goes down to a 32nd of an image's rows is cut in steps of 32.
_MOST_DOUBLED = 6


class OverlappingPlans:
    """The plans of one block whose tiles overlap; each region is grown and planned once.

    is_big, allowed, shifts: as in `grow`. overlap: whether any op does without shifts. hidden: whether some region
    hides another one that there might be without shifts.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options,
        is_big: Callable[[int], bool],
        allowed: Callable[[Node, Factor], bool],
        work: Mapping[int, float],
        shifts: bool,
    ):
        self.shifts = shifts
        self.hidden = False
        self.graph = graph
        self.options = options
        self.is_big = is_big
        self.allowed = allowed
        self.work = work
        self.regions: dict[tuple[int, DimMapping, frozenset[int]], Region] = {}
        self.plans: dict[int, Plan | None] = {}  # by the id of a region that `regions` keeps
        self.overlap = any(node.rule.overlaps for node in graph.nodes)
        self.exist = self.overlap or (shifts and any(may_shift(node.name) for node in graph.nodes))

    def of(self, value: int, mappings: Sequence[DimMapping]) -> list[Plan]:
        """The plans that cut `value` along some of its mappings, or in steps of several elements of them."""
        found = [(mapping, self.plan_of(self.region_of(value, mapping))) for mapping in self.steps(value, mappings)]
        return _of_seed(value, found)

    def ending(self, value: int, mappings: Sequence[DimMapping], complete: Collection[int]) -> list[Plan]:
        """The same plans where they would lead through tensors that selected ones read complete, but end there."""
        found = []
        for mapping in self.steps(value, mappings) if complete else ():
            ends = frozenset(complete) & self.region_of(value, mapping).mappings.keys() - {value}
            if ends and (region := self.region_of(value, mapping, ends)).reaches():
                found.append((mapping, self.plan_of(region, ends)))
        return _of_seed(value, found)

    def steps(self, value: int, mappings: Sequence[DimMapping]) -> list[DimMapping]:
        """The mappings and those in steps of several elements that reach further."""
        return [step for mapping in mappings for step in self.coarser(value, mapping)] if self.exist else []

    def in_place(self, value: int, before: int, mappings: Sequence[DimMapping]) -> list[Plan]:
        """The plans that write a tensor over the one before it, and read that ahead."""
        plans = [self.plan_of(self.region_of(value, mapping)) for mapping in mappings] if self.exist else []
        return [plan for plan in plans if plan is not None and any(before in loop.windows for loop in plan.loops)]

    def coarser(self, value: int, mapping: DimMapping) -> Iterator[DimMapping]:
        """The mapping and, while an overlapping region reaches more ops with them, steps of twice as many elements.

        A tensor that is cut together with one of half its resolution is cut in steps of two of its rows.
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

    def region_of(self, value: int, mapping: DimMapping, ends: frozenset[int] = frozenset()) -> Region:
        """The region with overlaps; its tensors that lead to the same region share it. ends: where it stops."""
        key = (value, mapping, ends)
        if key not in self.regions:
            region = grow(
                self.graph,
                value,
                mapping,
                self.is_big,
                self.allowed,
                overlaps=True,
                shifts=self.shifts,
                anchors=ends,
            )
            self.regions[key] = region
            self.hidden |= self.shifts and self.hides_another(region)
            mutual = not is_seam(self.graph, value, self.is_big, ())
            for other, its in region.mappings.items() if mutual else ():
                inside = self.graph.tensors[other].producer in region.tiled
                if inside and not is_seam(self.graph, other, self.is_big, region.tiled):
                    self.regions.setdefault((other, its, ends), region)
        return self.regions[key]

    def hides_another(self, region: Region) -> bool:
        """Whether the region without shifts might have a plan as well."""
        graph = self.graph
        nodes = (graph.nodes[place] for place in region.tiled)
        if any(updates_carry(graph, node) and not updates_in_place(graph, node) for node in nodes):
            return True
        reaching = (graph.nodes[place].name for place, tiled in region.tiled.items() if tiled.factor.reaches)
        return self.overlap and any(map(may_shift, reaching))

    def plan_of(self, region: Region, ends: frozenset[int] = frozenset()) -> Plan | None:
        """The plan of a region, if there is one; the tensors that it removes share the region."""
        if id(region) in self.plans:
            return self.plans[id(region)]
        self.plans[id(region)] = None
        loops = find_loops(self.graph, region, self.is_big, self.work)
        if isinstance(loops, Refusal) or not loops.vanished:
            return None
        size = slice_bytes_of(self.graph, region.tiled, self.options)
        plan = make_plan(self.graph, region, loops, size, self.is_big, self.options.machine)
        if isinstance(plan, Refusal):
            return None
        self.plans[id(region)] = plan
        for other in plan.vanished:
            if other in region.mappings:
                self.regions.setdefault((other, region.mappings[other], ends), region)
        return plan


def _of_seed(value: int, found: Sequence[tuple[DimMapping, Plan | None]]) -> list[Plan]:
    """The plans that let a tensor vanish, as plans for it."""
    return [
        replace(plan, seed=value, mapping=mapping)
        for mapping, plan in found
        if plan is not None and value in plan.vanished
    ]
