"""Chooses the splits of one block: candidate plans for every big tensor, the best of them, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from operator import is_

from exla_opt.ops.rules import DimMapping, Factor
from exla_opt.ops.tiling import reassociates
from exla_opt.ops.traits import Trait
from exla_opt.options import Options
from exla_opt.remarks import Reason

from ..graph import OUTSIDE, TILE_MARK, Graph, Node, becomes_result, updates_carry
from ..regions.growth import grow, is_seam
from ..regions.libraries import without_calls
from ..regions.loops import TOO_MANY_LOOPS, Loops, Refusal, find_loops, refuse_returned, refuse_unsplit
from ..regions.region import Region
from .allowance import Allowance, refuse_dear
from .block import BlockRun, peak_before, run_planned
from .body import MOST_SLICES_ALIVE, WorkOf, written_tensors
from .candidates import log_candidates
from .overlapping import OverlappingPlans
from .plan import Plan, make_plan
from .selection import Selection, candidate_mappings, join_plans
from .slices import slice_bytes_of
from .twins import find_twins

# A split must promise at least this much less memory: the prediction misses small harms.
_LEAST_GAIN = 1.1
# A large extent must beat the small ones by this factor; it is tried from this many of the plans' tensors.
_WIDE_GAIN = 1.5
_WIDE_SEEDS = 3
# The required speed-up of tiles that overlap for slices and pads over tiles that do not, if both are possible.
_SHIFTED_GAIN = 1.25


@dataclass(slots=True)
class Choice:
    """The plans to build now, and why the other big tensors stay."""

    plans: list[Plan] = field(default_factory=list)
    refusals: dict[int, Refusal] = field(default_factory=dict)


def _may_cut(options: Options) -> Callable[[Node, Factor], bool]:
    def allowed(node: Node, factor: Factor) -> bool:
        return options.reassociate or not reassociates(node.op, factor)

    return allowed


class _Chooser:
    def __init__(self, graph: Graph, options: Options, allowance: Allowance, shifts: bool):
        self.graph = graph
        self.shifts = shifts
        self.allowance = allowance
        self.options = options
        self.slice_bytes = options.slice_bytes
        if graph.tile:  # tensors that are still too large are cut again
            self.slice_bytes = slice_bytes_of(graph, range(len(graph.nodes)), options)
        self.threshold = self.slice_bytes if graph.tile else options.size_threshold
        self.allowed = _may_cut(options)
        self.known: dict[tuple[int, DimMapping], Plan | Refusal] = {}
        self.hopeless: dict[tuple[int, DimMapping], Reason] = {}
        self.twins = find_twins(graph, self.is_over)
        self.selected = Selection(graph)
        self.gaining: dict[int, bool] = {}
        self.work = WorkOf(graph, options.machine)
        self.runs: list[tuple[Sequence[Plan], BlockRun]] = []

    @cached_property
    def overlapping(self) -> OverlappingPlans:
        """The plans whose tiles overlap."""
        return OverlappingPlans(self.graph, self.options, self.is_big, self.allowed, self.work, self.shifts)

    def is_over(self, value: int) -> bool:
        """Whether a tensor is over the threshold."""
        return self.graph.tensors[value].type.bytes > self.threshold

    def is_big(self, value: int) -> bool:
        """Whether a tensor is over the threshold, or has the numbers of one that is in another type."""
        return self.is_over(value) or value in self.twins

    def plan_for(self, value: int, mapping: DimMapping) -> Plan | Refusal:
        """The plan that cuts `value` along `mapping`; seeds that lead to the same region share it, or its refusal."""
        key = (value, mapping)
        if key not in self.known:
            self.search(value, mapping)
        return self.known[key]

    def search(self, value: int, mapping: DimMapping) -> None:
        """Search from a new seed, and record the result for all seeds of the same region: it is grown once."""
        region = grow(self.graph, value, mapping, self.is_big, self.allowed, self.hopeless)
        if region.joined is not None:
            self.give_up(region, self.hopeless[region.joined])
            return
        if not self.options.calls_in_loops:
            region = without_calls(self.graph, region, self.is_big, self.allowed, self.hopeless)
        loops = find_loops(self.graph, region, self.is_big, self.work)
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
            found = self.planned(region, loops)
            self.share(region, dict.fromkeys(loops.vanished, found))

    def planned(self, region: Region, loops: Loops) -> Plan | Refusal:
        """The plan for the loops, or for fewer of them with a running maximum: whichever is better."""
        ways = [loops] if loops.online is None else [loops, replace(loops, stages=loops.online)]
        found = [self.make_plan(region, way) for way in ways]
        plans = [plan for plan in found if isinstance(plan, Plan)]
        return min(plans, key=lambda plan: plan.rank(self.slice_bytes)) if plans else found[0]

    def make_plan(self, region: Region, loops: Loops) -> Plan | Refusal:
        """The plan for the loops of a region, in slices of its own size."""
        size = slice_bytes_of(self.graph, region.tiled, self.options)
        return make_plan(self.graph, region, loops, size, self.is_big, self.options.machine)

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

    def best_for(self, value: int) -> Plan | Refusal:
        """The best plan for a tensor among its candidates, or why there is none."""
        mappings = candidate_mappings(self.graph, value)
        found = {mapping: self.plan_for(value, mapping) for mapping in mappings}
        plans = [
            plan if plan.seed in plan.vanished else replace(plan, seed=value, mapping=mapping)
            for mapping, plan in found.items()
            if isinstance(plan, Plan) and value in plan.vanished
        ]
        plans += self.overlapping.of(value, mappings)
        plans.sort(key=self.order)
        refused = [(mapping, each) for mapping, each in found.items() if isinstance(each, Refusal)]
        best = self.best_of(plans, [each for _, each in refused])
        log_candidates(self.graph, value, refused, plans, best, self.slice_bytes)
        return best

    def best_of(self, plans: Sequence[Plan], refusals: Sequence[Refusal]) -> Plan | Refusal:
        """The first plan that is allowed and worthwhile, or why there is none. refusals: of other dimensions."""
        allowed = [plan for plan in plans if self.allowance.allows(self.graph.block, plan.added)]
        if plans and not allowed:
            return refuse_dear()
        plans = allowed
        for place, plan in enumerate(plans):
            if self.gains(plan) and not (plan.cuts_loops and self.is_better_inside(plan, plans[place + 1 :])):
                return plan
        if plans:
            return Refusal(
                Reason(
                    "EX305",
                    "splitting it would not save memory: a tensor that it is computed from or leads to is as big",
                ),
                None,
            )
        return refusals[0] if refusals else Refusal(Reason("EX106", "it has no dimension to split"), None)

    def order(self, plan: Plan) -> tuple[int, int, float]:
        """The order among the plans of a tensor: a stencil's tiles recompute some elements, so must be faster."""
        remaining, room, seconds = plan.rank(self.slice_bytes)
        return remaining, room, seconds * (_SHIFTED_GAIN if plan.shifts else 1.0)

    def gains(self, plan: Plan) -> bool:
        """Whether the plan is worthwhile: clearly less memory than before. The seeds of one region share its loops."""
        key = id(plan.loops)  # which `known` keeps alive
        if key not in self.gaining:
            before = peak_before(self.graph, plan, self.options.machine)
            self.gaining[key] = plan.peak * _LEAST_GAIN < before
        return self.gaining[key]

    def is_better_inside(self, plan: Plan, others: Sequence[Plan]) -> bool:
        """Whether the block takes as little if the loops of the program stay, and are cut inside."""
        selected = list(self.selected.plans.values())
        inside = self.run(selected)
        if inside.peak_without(self.graph, plan) * _LEAST_GAIN >= inside.peak:
            return True  # the peak is elsewhere: no need to run the entire block again for each of its tensors
        other = next((each for each in others if not each.cuts_loops and self.gains(each)), None)
        if other is not None:
            inside = self.run([*selected, other])
        rest = [each for each in selected if each.tiled.keys().isdisjoint(plan.tiled)]
        return self.run([*rest, plan]).peak * _LEAST_GAIN >= inside.peak

    def run(self, plans: Sequence[Plan]) -> BlockRun:
        """The block with some plans; the last two results are cached: for the selected plans, and with one more."""
        known = [each for each in self.runs if len(each[0]) == len(plans) and all(map(is_, each[0], plans))]
        if not known:
            known = [(plans, run_planned(self.graph, plans, self.options.machine, self.slice_bytes))]
        self.runs = [*[each for each in self.runs if each is not known[0]][-1:], known[0]]
        return known[0][1]

    def choose(self) -> Choice:
        graph = self.graph
        big = [value for value in range(len(graph.tensors)) if self.is_over(value)]
        made = [value for value in big if self.is_made(value)]
        if not made:
            return Choice()
        written = written_tensors(graph, self.options.machine)
        choice = Choice()
        covered: set[int] = set()
        selected = self.selected
        for value in sorted(made, key=lambda value: (-graph.tensors[value].type.bytes, value)):
            if value in covered or self.is_start(value):
                continue
            found = self.refuse_early(value, written) or self.best_for(value)
            if isinstance(found, Refusal):
                if self.is_worth_reporting(value, written):
                    choice.refusals[value] = found
                continue
            if selected.add(found):
                covered |= found.vanished
        for plan in self.in_place():
            if selected.add(plan):
                covered |= plan.vanished
        known = [plan for plan in self.known.values() if isinstance(plan, Plan) and not plan.cuts_loops]
        choice.plans = join_plans(graph, list(selected.plans.values()), known, self.slice_bytes)
        self.widen(choice)
        for plan in choice.plans:
            for value in plan.vanished:
                choice.refusals.pop(value, None)
        return choice

    def in_place(self) -> Iterator[Plan]:
        """Plans that overwrite a carry of a loop ahead of which they read: without them, there are two buffers."""
        graph = self.graph
        made = graph.overwritten.items() if graph.nested and self.shifts and not graph.tile else ()
        for value, before in made:
            if self.is_over(value) and graph.tensors[value].producer != OUTSIDE:
                plans = self.overlapping.in_place(value, before, candidate_mappings(graph, value))
                allowed = [plan for plan in plans if self.allowance.allows(graph.block, plan.added)]
                if allowed:
                    yield min(allowed, key=self.order)

    def is_made(self, value: int) -> bool:
        """Whether an op computes the tensor, and something reads it: a loop reads its carries."""
        tensor = self.graph.tensors[value]
        if tensor.producer == OUTSIDE:
            return False
        node = self.graph.nodes[tensor.producer]
        return bool(tensor.users) or (Trait.CONTROL_FLOW in node.traits and TILE_MARK not in node.op.attributes)

    def widen(self, choice: Choice) -> None:
        """Replace all plans by one with a large extent if that saves clearly more of the block's peak."""
        graph = self.graph
        if not choice.plans or graph.tile:
            return
        peak = self.run(choice.plans).peak
        goal = max(self.threshold, MOST_SLICES_ALIVE * self.slice_bytes)  # the memory of a loop's own body
        if peak <= goal:
            return
        best: tuple[int, float, Plan] | None = None
        tried: list[Region] = []
        seeds = [plan.seed for plan in choice.plans[:_WIDE_SEEDS]]
        for value in seeds:
            for mapping in candidate_mappings(graph, value):
                if any(region.mappings.get(value) == mapping for region in tried):
                    continue
                region = grow(graph, value, mapping, lambda other: graph.tensors[other].type.shape != (), self.allowed)
                tried.append(region)
                loops = find_loops(graph, region, self.is_big, self.work)
                if isinstance(loops, Refusal) or value not in loops.vanished:
                    continue
                plan = self.make_plan(region, loops)
                if isinstance(plan, Refusal):
                    continue
                wide_peak = self.run([plan]).peak
                # Of those that take no more than the goal, the fastest is best.
                rank = (max(wide_peak, goal), plan.seconds)
                if wide_peak * _WIDE_GAIN < peak and (best is None or rank < best[:2]):
                    best = (*rank, plan)
        if best is not None:
            choice.plans = [best[2]]

    def is_worth_reporting(self, value: int, written: set[int]) -> bool:
        """In a body of ours, only tensors that are still over the user's own threshold."""
        graph, tensor = self.graph, self.graph.tensors[value]
        if not graph.tile:
            return True
        over = tensor.type.bytes > self.options.size_threshold
        return over and value in written and not updates_carry(graph, graph.nodes[tensor.producer])

    def is_start(self, value: int) -> bool:
        """Whether a tensor is never in memory: a constant, or a number that a loop starts from."""
        graph, tensor = self.graph, self.graph.tensors[value]
        node = graph.nodes[tensor.producer]
        if Trait.FREE not in node.traits or Trait.MOVES in node.traits and not node.operands:
            return False
        if not node.operands:
            return True
        loops = Trait.CONTROL_FLOW | Trait.IN_PLACE
        one_number = not graph.tensors[node.operands[0]].type.shape
        return one_number and all(loops in graph.nodes[user].traits for user, _ in tensor.users)

    def refuse_early(self, value: int, written: set[int]) -> Refusal | None:
        """Why a tensor need not or cannot be split, if so."""
        graph, tensor = self.graph, self.graph.tensors[value]
        node = graph.nodes[tensor.producer]
        if TILE_MARK in node.op.attributes:
            return Refusal(
                Reason("EX104", "it is needed complete, and the loop writes it slice by slice"), tensor.users[0][0]
            )
        if value not in written:
            return Refusal(Reason("EX101", "XLA fuses it into its readers: it is never in memory"), tensor.producer)
        if prod(tensor.type.shape) == 0:
            return Refusal(Reason("EX105", "it is empty"), tensor.producer)
        if updates_carry(graph, node):
            return Refusal(Reason("EX302", f"{node.name} updates a loop carry"), tensor.producer)
        if becomes_result(graph, value):
            return refuse_returned(graph)  # whatever its region is, it must exist at the end
        return None


def choose(graph: Graph, options: Options, allowance: Allowance, shifts: bool = True) -> Choice:
    """The plans for one block: largest tensors first, each with the best of its candidates.

    Plans that cannot be built together with the first ones are left for the next round. shifts: as in `Choices`.
    """
    return _Chooser(graph, options, allowance, shifts).choose()
