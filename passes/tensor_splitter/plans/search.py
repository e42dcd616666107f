"""Searches the plans of one block: one for each way to cut a tensor, or why there is none.

NOTE [Anchors]: a region that follows a factor as far as it reaches may lead through tensors that something reads
complete, such as both operands of a product or the input of a batch's mean: its loops write these slice by slice, and
each later loop computes all before it again. Regions that end at such tensors, the anchors, read slices of them
instead: nothing is computed twice, and only what is between two anchors vanishes.

    x, y = f(x), product(x, x)     ->     loop: x'[i] = f(x[i])     loop: y[i] = product(x'[i], x')
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from exla_opt.ops.rules import DimMapping, Factor
from exla_opt.ops.tiling import reassociates
from exla_opt.options import Options
from exla_opt.remarks import Reason

from ..graph import Graph, Node
from ..regions.growth import grow, is_seam
from ..regions.libraries import without_calls
from ..regions.loops import TOO_MANY_LOOPS, Loops, Refusal, find_loops, refuse_unsplit
from ..regions.region import Region
from .body import WorkOf
from .nested import Nested
from .plan import Plan, make_plan
from .slices import slice_bytes_of


def may_cut(options: Options) -> Callable[[Node, Factor], bool]:
    """Whether an op may be cut along one of its factors: not into sums tile by tile without permission."""

    def allowed(node: Node, factor: Factor) -> bool:
        return options.reassociate or not reassociates(node.op, factor)

    return allowed


@dataclass(slots=True)
class _Searched:
    """A region, its loops or why there are none, and the plan for these, None until it is made."""

    region: Region
    loops: Loops | Refusal
    plan: Plan | Refusal | None = None


class Plans:
    """The plans of one block that were searched so far.

    anchors: the tensors at which regions end. stored: the big tensors that the loops of some region, worthwhile or not,
    would write slice by slice. searched: what was found from each seed. before: the same of a search without these
    anchors; a region that it grew as well is not planned again.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options,
        slice_bytes: int,
        is_big: Callable[[int], bool],
        work: WorkOf,
        anchors: Collection[int],
        before: Plans | None = None,
    ):
        self.graph = graph
        self.options = options
        self.slice_bytes = slice_bytes
        self.is_big = is_big
        self.allowed = may_cut(options)
        self.work = work
        self.anchors = anchors
        self.stored: set[int] = set()
        self.known: dict[tuple[int, DimMapping], Plan | Refusal] = {}
        self.hopeless: dict[tuple[int, DimMapping], Reason] = {}
        self.searched: dict[tuple[int, DimMapping], _Searched] = {}
        self.before = {} if before is None else before.searched

    def of(self, value: int, mapping: DimMapping) -> Plan | Refusal:
        """The plan that cuts `value` along `mapping`; seeds that lead to the same region share it, or its refusal."""
        key = (value, mapping)
        if key not in self.known:
            self.search(value, mapping)
        return self.known[key]

    def search(self, value: int, mapping: DimMapping) -> None:
        """Search from a new seed, and record the result for all seeds of the same region: it is grown once."""
        region = grow(self.graph, value, mapping, self.is_big, self.allowed, self.hopeless, anchors=self.anchors)
        if region.joined is not None:
            self.give_up(region, self.hopeless[region.joined])
            return
        if not self.options.calls_in_loops:
            region = without_calls(self.graph, region, self.is_big, self.allowed, self.hopeless, self.anchors)
        searched = self.before.get((value, mapping))
        if searched is None or searched.region != region:
            searched = _Searched(region, find_loops(self.graph, region, self.is_big, self.work))
        self.searched[value, mapping] = searched
        loops = searched.loops
        self.stored.update(filter(self.is_big, loops.stored(self.graph)))
        if isinstance(loops, Refusal):
            self.share(region, dict.fromkeys(region.mappings, loops))
            if loops.reason.code == TOO_MANY_LOOPS:
                self.give_up(region, loops.reason)
            return
        unsplit = {
            other: refuse_unsplit(self.graph, region, other) for other in region.mappings.keys() - loops.vanished
        }
        self.share(region, unsplit)
        if loops.vanished:
            if searched.plan is None:
                searched.plan = self.planned(region, loops)
            self.share(region, dict.fromkeys(loops.vanished, searched.plan))

    def planned(self, region: Region, loops: Loops) -> Plan | Refusal:
        """The plan for the loops, or for fewer of them with a running maximum: whichever is better."""
        ways = [loops] if loops.online is None else [loops, replace(loops, stages=loops.online)]
        found = [self.make_plan(region, way) for way in ways]
        plans = [plan for plan in found if isinstance(plan, Plan)]
        return min(plans, key=lambda plan: plan.rank(self.slice_bytes)) if plans else found[0]

    def make_plan(self, region: Region, loops: Loops) -> Plan | Refusal:
        """The plan for the loops of a region, in slices of its own size."""
        size = slice_bytes_of(self.graph, region.tiled, self.options)
        nested: Nested = "allowed" if self.options.nested_tiles else "asked"
        machine = self.options.machine
        return make_plan(self.graph, region, loops, size, self.is_big, machine, nested=nested)

    def give_up(self, region: Region, reason: Reason) -> None:
        """Record that the region takes too many loops, from whatever tensor it is reached."""
        self.share(region, dict.fromkeys(region.mappings, Refusal(reason)))
        self.hopeless.update(
            ((other, mapping), reason) for other, mapping in region.mappings.items() if mapping.low == 0
        )

    def share(self, region: Region, found: Mapping[int, Plan | Refusal]) -> None:
        """Record results for tensors of a region whose own search would lead to the same region."""
        seed = region.seed
        planned = isinstance(found.get(seed), Plan)
        mutual = not is_seam(self.graph, seed, self.is_big, ())
        for value, mapping in region.mappings.items():
            if value not in found or mapping.low or (value, mapping) in self.known:
                continue
            inside = self.graph.tensors[value].producer in region.tiled
            same = mutual and inside and not is_seam(self.graph, value, self.is_big, region.tiled)
            if value == seed or same or (planned and found[value] is found[seed]):
                self.known[value, mapping] = found[value]
