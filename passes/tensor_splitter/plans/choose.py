"""Chooses the splits of one block: candidate plans for every big tensor, the best of them, and refusals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait
from exla_opt.options import Options
from exla_opt.remarks import Reason

from ..graph import OUTSIDE, TILE_MARK, Graph, updates_carry
from ..regions.growth import grow
from ..regions.loops import Loops, Refusal, find_loops
from ..regions.region import Region
from .allowance import Allowance, refuse_dear
from .block import BlockRun, peak_before, run_planned
from .body import MOST_SLICES_ALIVE, WorkOf, work_of, written_tensors
from .candidates import log_anchors, log_candidates, log_choice
from .captured import is_rival
from .early import is_start, refuse_early
from .overlapping import OverlappingPlans
from .plan import Plan
from .search import Plans
from .selection import Selection, candidate_mappings, join_plans
from .slices import slice_bytes_of
from .twins import find_twins

# A split must promise at least this much less memory: the prediction misses small harms.
_LEAST_GAIN = 1.1
# A large extent must beat the small ones by this factor; it is tried from this many of the plans' tensors.
_WIDE_GAIN = 1.5
_WIDE_SEEDS = 3
# Regions may end at tensors that are smaller than the largest by this factor.
_ANCHORED = 2
# Recomputing this part of a block's arithmetic is worth a search for plans that store more.
_DEAR = 0.1
# The required speed-up of tiles that overlap for slices and pads over tiles that do not, if both are possible.
_SHIFTED_GAIN = 1.25


@dataclass(slots=True)
class Choice:
    """The plans to build now, and why the other big tensors stay.

    shifts: whether it might be another one if tiles must not overlap for slices, pads and joins.
    """

    plans: list[Plan] = field(default_factory=list)
    refusals: dict[int, Refusal] = field(default_factory=dict)
    shifts: bool = False


class _Chooser:
    def __init__(
        self,
        graph: Graph,
        options: Options,
        allowance: Allowance,
        shifts: bool,
        anchors: Collection[int] = (),
        before: _Chooser | None = None,
    ):
        """anchors: as in `Plans`. before: the chooser without them."""
        self.graph = graph
        self.shifts = shifts
        self.shifted = False
        self.allowance = allowance
        self.options = options
        self.slice_bytes = options.slice_bytes
        if graph.tile:  # tensors that are still too large are cut again
            self.slice_bytes = slice_bytes_of(graph, range(len(graph.nodes)), options)
        self.threshold = self.slice_bytes if graph.tile else options.size_threshold
        self.twins = find_twins(graph, self.is_over)
        self.selected = Selection(graph)
        self.gaining: dict[int, bool] = {}
        self.work: WorkOf = WorkOf(graph, options.machine) if before is None else before.work
        known = None if before is None else before.plans
        self.plans: Plans = Plans(graph, options, self.slice_bytes, self.is_big, self.work, anchors, known)
        self.runs: dict[tuple[int, ...], tuple[Sequence[Plan], BlockRun]] = {}
        self.wide: dict[tuple[int, DimMapping], tuple[Region, Plan | None]] = {}
        if before is not None:
            self.overlapping, self.gaining, self.runs = before.overlapping, before.gaining, before.runs
            self.wide = before.wide

    @cached_property
    def overlapping(self) -> OverlappingPlans:
        """The plans whose tiles overlap."""
        return OverlappingPlans(self.graph, self.options, self.is_big, self.plans.allowed, self.work, self.shifts)

    def is_over(self, value: int) -> bool:
        """Whether a tensor is over the threshold."""
        return self.graph.tensors[value].type.bytes > self.threshold

    def is_big(self, value: int) -> bool:
        """Whether a tensor is over the threshold, or has the numbers of one that is in another type."""
        return self.is_over(value) or value in self.twins

    def best_for(self, value: int) -> Plan | Refusal:
        """The best plan for a tensor among its candidates, or why there is none."""
        mappings = candidate_mappings(self.graph, value)
        found = {mapping: self.plans.of(value, mapping) for mapping in mappings}
        plans = [
            plan if plan.seed in plan.vanished else replace(plan, seed=value, mapping=mapping)
            for mapping, plan in found.items()
            if isinstance(plan, Plan) and value in plan.vanished
        ]
        plans += self.overlapping.of(value, mappings)
        plans.sort(key=self.order)
        refused = [(mapping, each) for mapping, each in found.items() if isinstance(each, Refusal)]
        refusals = [each for _, each in refused]
        best = self.best_of(plans, refusals)
        if not self.plans.anchors and any(plan.remaining for plan in plans[:1]):
            best = self.or_ending(value, mappings, best)
        if any(plan.shifts for plan in plans):
            self.shifted |= self.best_of([plan for plan in plans if not plan.shifts], refusals) != best
        log_candidates(self.graph, value, refused, plans, best, self.slice_bytes)
        # Cut again, the tiles of another candidate may be better than these.
        if isinstance(best, Plan) and not best.may_nest and any(plan.may_nest for plan in plans):
            return replace(best, may_nest=True)
        return best

    def or_ending(self, value: int, mappings: Sequence[DimMapping], best: Plan | Refusal) -> Plan | Refusal:
        """The best plan of a tensor, or one whose tiles overlap and end at what others read complete.

        That must leave fewer bytes unsplit, and the block must take less with it.
        """
        plans = [
            plan
            for plan in self.overlapping.ending(value, mappings, self.complete())
            if not plan.shifts and (isinstance(best, Refusal) or plan.remaining < best.remaining)
        ]
        other = self.best_of(sorted(plans, key=self.order), ())
        if not isinstance(other, Plan):
            return best
        selected = list(self.selected.plans.values())
        peak = self.run([*selected, *([best] if isinstance(best, Plan) else [])]).peak
        return other if self.run([*selected, other]).peak * _LEAST_GAIN < peak else best

    def complete(self) -> set[int]:
        """The big tensors of the block that the loops of selected plans read complete."""
        graph = self.graph
        read = {
            value
            for plan in self.selected.plans.values()
            for position in plan.tiled.keys() - plan.copies
            for value, mapping in zip(graph.nodes[position].operands, plan.tiled[position].operands, strict=True)
            if mapping is None
        }
        return {value for value in read if self.is_over(value) and graph.tensors[value].producer != OUTSIDE}

    def best_of(self, plans: Sequence[Plan], refusals: Sequence[Refusal]) -> Plan | Refusal:
        """The first plan that is allowed and worthwhile, or why there is none. refusals: of other dimensions."""
        allowed = self.allowed(plans)
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

    def allowed(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans that the rest of the module leaves enough arithmetic for; other plans there may leave more."""
        allowed = [plan for plan in plans if self.allowance.allows(self.graph.block, plan.added)]
        self.shifted |= len(allowed) < len(plans)
        return allowed

    def order(self, plan: Plan) -> tuple[int, int, float]:
        """The order among the plans of a tensor: a stencil's tiles recompute some elements, so must be faster."""
        remaining, room, seconds = plan.rank(self.slice_bytes)
        return remaining, room, seconds * (_SHIFTED_GAIN if plan.shifts else 1.0)

    def gains(self, plan: Plan) -> bool:
        """Whether the plan is worthwhile: clearly less memory than before. The seeds of one region share its loops."""
        key = id(plan.loops)  # which `plans.searched`, those before, and `overlapping` keep alive
        if key not in self.gaining:
            before = peak_before(self.graph, plan, self.options.machine)
            self.gaining[key] = plan.peak * _LEAST_GAIN < before
        return self.gaining[key]

    def is_better_inside(self, plan: Plan, others: Sequence[Plan]) -> bool:
        """Whether the block takes as little if the loops of the program stay, and are cut inside."""
        selected = list(self.selected.plans.values())
        inside = self.run(selected)
        if inside.peak_without(self.graph, plan.tiled, plan.vanished) * _LEAST_GAIN >= inside.peak:
            return True  # the peak is elsewhere: no need to run the entire block again for each of its tensors
        other = next((each for each in others if not each.cuts_loops and self.gains(each)), None)
        if other is not None:
            inside = self.run([*selected, other])
        # What shares ops with the plan is planned anew in a next round.
        later = [each for each in selected if not each.tiled.keys().isdisjoint(plan.tiled)]
        with_plan = self.run([*(each for each in selected if each not in later), plan])
        positions = {position for each in later for position in each.tiled} - plan.tiled.keys()
        vanished = {value for each in later for value in each.vanished}
        return with_plan.peak_without(self.graph, positions, vanished) * _LEAST_GAIN >= inside.peak

    def run(self, plans: Sequence[Plan]) -> BlockRun:
        """The block with some plans. Many tensors of a region ask for the same, so it is cached."""
        key = tuple([id(plan.loops) for plan in plans])  # which the cache keeps alive
        if key not in self.runs:
            found = run_planned(self.graph, plans, self.options.machine, self.slice_bytes)
            self.runs[key] = (tuple(plans), found)
        return self.runs[key][1]

    def choose(self) -> Choice:
        graph = self.graph
        made = self.big_made()
        if not made:
            return Choice()
        written = written_tensors(graph, self.options.machine)
        choice = Choice()
        covered: set[int] = set()
        selected = self.selected
        for value in sorted(made, key=lambda value: (-graph.tensors[value].type.bytes, value)):
            if value in covered or value in self.plans.anchors or is_start(graph, value) or self.is_repeated(value):
                continue
            found = refuse_early(graph, value, written) or self.best_for(value)
            if isinstance(found, Refusal):
                if self.is_worth_reporting(value, written):
                    choice.refusals[value] = found
                continue
            if not is_rival(graph, found, selected.plans.values(), value, self.threshold) and selected.add(found):
                covered |= found.vanished
        for plan in self.in_place():
            self.shifted = True
            if selected.add(plan):
                covered |= plan.vanished
        known = [plan for plan in self.plans.known.values() if isinstance(plan, Plan) and not plan.cuts_loops]
        choice.plans = join_plans(graph, list(selected.plans.values()), known, self.slice_bytes)
        self.widen(choice)
        for plan in choice.plans:
            for value in plan.vanished:
                choice.refusals.pop(value, None)
        choice.shifts = self.shifted or self.overlapping.hidden
        return choice

    def is_repeated(self, value: int) -> bool:
        """Whether all readers of a cheap tensor are in loops of the selected plans that compute slices of it."""
        tensor = self.graph.tensors[value]
        plans = [plan for plan in self.selected.plans.values() if tensor.producer in plan.copies]
        return bool(plans) and all(any(_reads_slices(plan, *use) for plan in plans) for use in tensor.users)

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

    def big_made(self) -> list[int]:
        """The tensors over the threshold that may be split."""
        return [value for value in range(len(self.graph.tensors)) if self.is_over(value) and self.is_made(value)]

    def is_made(self, value: int) -> bool:
        """Whether an op computes the tensor, and something reads it: a loop reads its carries."""
        tensor = self.graph.tensors[value]
        if tensor.producer == OUTSIDE:
            return False
        node = self.graph.nodes[tensor.producer]
        return bool(tensor.users) or (Trait.CONTROL_FLOW in node.traits and TILE_MARK not in node.op.attributes)

    @property
    def goal(self) -> int:
        """The bytes that a loop's own body takes: a block that needs no more between its loops is good enough."""
        return max(self.threshold, MOST_SLICES_ALIVE * self.slice_bytes)

    def is_enough(self, choice: Choice) -> bool:
        """Whether the block takes no more than its goal with the plans of a choice."""
        return self.run(choice.plans).peak <= self.goal

    def anchors(self) -> frozenset[int]:
        """The tensors at which regions may end (`search.py`): stored by some loop, and at most half of the largest.

        The largest tensor should vanish, whatever region stores it.
        """
        sizes = [tensor.type.bytes for tensor in self.graph.tensors]
        largest = max((sizes[value] for value in self.big_made()), default=0)
        return frozenset(value for value in self.plans.stored if sizes[value] * _ANCHORED <= largest)

    def is_better(self, choice: Choice, other: Choice) -> bool:
        """Whether a choice takes clearly less memory than another, or no more with clearly less arithmetic.

        The factor of memory must be above that of the arithmetic which it costs. What is below the goal counts as it.
        """
        peak, most = (max(self.run(each.plans).peak, self.goal) for each in (choice, other))
        more = self.added(choice) - self.added(other)
        return peak * max(_LEAST_GAIN, 1 + more) < most or (peak <= most and -more > _DEAR)

    def added(self, choice: Choice) -> float:
        """The arithmetic that a choice adds to the block, as a part of all that the block does."""
        work = sum(work_of(self.graph, self.options.machine, any_shape=True).values())
        return sum(plan.added for plan in choice.plans) / max(work, 1e-12)

    def widen(self, choice: Choice) -> None:
        """Replace all plans by one with a large extent if that saves clearly more of the block's peak."""
        graph = self.graph
        if not choice.plans or graph.tile or self.is_enough(choice):
            return
        peak = self.run(choice.plans).peak
        best: tuple[int, float, Plan] | None = None
        tried: list[Region] = []
        seeds = [plan.seed for plan in choice.plans[:_WIDE_SEEDS]]

        for value in seeds:
            for mapping in candidate_mappings(graph, value):
                if any(region.mappings.get(value) == mapping for region in tried):
                    continue
                region, plan = self.wide_plan(value, mapping)
                tried.append(region)
                if plan is None or not self.allowance.allows(graph.block, plan.added):
                    continue
                wide_peak = self.run([plan]).peak
                # Of those that take no more than the goal, the fastest is best.
                rank = (max(wide_peak, self.goal), plan.seconds)
                if wide_peak * _WIDE_GAIN < peak and (best is None or rank < best[:2]):
                    best = (*rank, plan)
        if best is not None:
            choice.plans = [best[2]]

    def wide_plan(self, value: int, mapping: DimMapping) -> tuple[Region, Plan | None]:
        """The region of tensors of all sizes that `mapping` cuts, and its plan, if the tensor then vanishes.

        Cached: of a network, each takes seconds, and anchors change nothing.
        """
        key = (value, mapping)
        if key in self.wide:
            return self.wide[key]
        graph = self.graph

        def is_tensor(other: int) -> bool:
            return graph.tensors[other].type.shape != ()

        region = grow(graph, value, mapping, is_tensor, self.plans.allowed)
        loops = find_loops(graph, region, self.is_big, self.work)
        plan: Plan | Refusal | None = None
        if isinstance(loops, Loops) and value in loops.vanished:
            plan = self.plans.make_plan(region, loops)
        self.wide[key] = region, plan if isinstance(plan, Plan) else None
        return self.wide[key]

    def is_worth_reporting(self, value: int, written: set[int]) -> bool:
        """In a body of ours, only tensors that are still over the user's own threshold."""
        graph, tensor = self.graph, self.graph.tensors[value]
        if not graph.tile:
            return True
        over = tensor.type.bytes > self.options.size_threshold
        return over and value in written and not updates_carry(graph, graph.nodes[tensor.producer])


def choose(graph: Graph, options: Options, allowance: Allowance, shifts: bool = True) -> Choice:
    """The plans for one block: largest tensors first, each with the best of its candidates.

    Plans that cannot be built together with the first ones are left for the next round. shifts: as in `Choices`.
    """
    chooser = _Chooser(graph, options, allowance, shifts)
    choice = chooser.choose()
    anchors = chooser.anchors() if not graph.tile else frozenset()
    if not anchors or (chooser.is_enough(choice) and chooser.added(choice) <= _DEAR):
        return choice
    log_anchors(graph, anchors)
    other = _Chooser(graph, options, allowance, shifts, anchors, chooser).choose()
    is_better = bool(other.plans) and chooser.is_better(other, choice)
    log_choice(is_better)
    return replace(other if is_better else choice, shifts=choice.shifts or other.shifts)


def _reads_slices(plan: Plan, user: int, index: int) -> bool:
    """Whether an op in the loops of a plan reads an operand in slices."""
    return index >= 0 and user in plan.tiled and plan.tiled[user].operands[index] is not None
