"""Plans: one way to split one region, with everything the loop builder needs and a predicted cost.

A plan is a frozen value: it refers to nodes and tensors by number and touches no IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2, prod

from exla_opt.memory.machine import Machine
from exla_opt.memory.seconds import seconds_of_sum, seconds_to_take
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import Graph, Node, TiledOp
from ..regions.extents import (
    Extents,
    Reads,
    find_extents,
    find_periods,
    find_reads,
    find_seams,
    refuse_extents,
)
from ..regions.loops import Loops, Refusal
from ..regions.overwrite import find_overwritten
from ..regions.region import Region
from ..regions.windows import Windows, find_windows
from .body import (
    MOST_SLICES_ALIVE,
    Body,
    body_of,
    body_peak,
    body_seconds,
    body_work,
    bytes_once_cut,
    bytes_per_index,
    kernels_of,
    longest_tile,
    work_of,
)
from .loop_plan import LoopPlan, overlapping_loop
from .nested import Nested, nested_sizes
from .remaining import largest_term, remaining_bytes, widened_bytes
from .runs import cut_runs, find_borders, tile_of

_MOST_BORDERS = 6
# A loop of the program is cut if all tiles together compute no more than this many times its arithmetic.
_MOST_REPEATED = 3.0
# A loop writes over a tensor that the program computes if that has at least this part of a slice: smaller ones gain
# little, and a loop that starts from zeros can still be cut by another one, and added up.
_WORTH_OVERWRITING = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to split one region.

    seed, mapping: the tensor that it was requested for, and how it is cut.
    copies: the tiled ops that the loops only repeat: the originals stay for their other readers.
    vanished: the big tensors that exist only in tiles afterwards. remaining: bytes of big tensors of the region that
    stay unsplit, are larger than what exists anyway, and are no results, or results that fail to overwrite what they
    could. peak: predicted bytes alive in the worst loop, outputs included. seconds: predicted time, for comparison
    only. too_big: how many slices a tile takes, which loops in its body then cut again. added: seconds of arithmetic of
    the loops beyond the ops that they replace. may_nest: whether tiles that are cut again (`nested.py`) may be longer.
    """

    seed: int
    mapping: DimMapping
    tiled: dict[int, TiledOp]
    loops: tuple[LoopPlan, ...]
    copies: frozenset[int]
    vanished: frozenset[int]
    remaining: int
    peak: int
    seconds: float
    too_big: int
    added: float
    may_nest: bool = False

    @property
    def cuts_loops(self) -> bool:
        """Whether loops of the program run in its tiles."""
        return any(loop.scratch for loop in self.loops)

    @property
    def shifts(self) -> bool:
        """Whether its tiles overlap for slices, pads or joins."""
        return any(loop.shifts for loop in self.loops)

    def rank(self, slice_bytes: int) -> tuple[int, int, float]:
        """The order among plans, best first: unsplit bytes, then memory by powers of two, then time."""
        room = max(self.peak / (MOST_SLICES_ALIVE * slice_bytes), 1.0)
        return (self.remaining, round(log2(room)), self.seconds)


def _seconds(graph: Graph, loop: LoopPlan, body: Body, too_big: int, again: int = 1) -> float:
    """Rough seconds of one loop; if an index is too big, each trip is again a loop of that many trips.

    again: the trips of a loop in each trip that cuts it along another dimension, although an index is not too big.
    """
    machine = body.planned.machine
    seconds = sum(run.trips * body_seconds(body, run.tile) for run in loop.runs)
    inner = max(too_big, again)
    nested = inner > 1
    trips = loop.trips * (1 + inner * nested)
    kernels = loop.trips * (too_big - 1) * len(loop.stage.nodes)
    if again > 1:
        kernels += loop.trips * (again - 1) * kernels_of(body)
    seconds += trips * machine.seconds_per_trip + kernels * machine.seconds_per_kernel
    if machine.kind == "cpu":  # tiles stay in the cache; unsplit tensors come from memory once per loop
        seconds += body.sliced / machine.bytes_per_second
    for output in loop.stage.outputs:
        node = graph.nodes[output.node]
        size = graph.tensors[node.results[output.result]].type.bytes
        if output.mapping is None:  # an inner loop of nested tiles adds to slices of it, in all as much as it takes
            seconds += loop.trips * too_big * _seconds_to_combine(graph, node, size, machine)
        else:  # written by the inner loop, then by the outer one
            seconds += (nested + (machine.kind == "cpu")) * size / machine.bytes_per_second
    return seconds


def _seconds_to_combine(graph: Graph, node: Node, size: int, machine: Machine) -> float:
    """The seconds in which a trip combines its result of `size` bytes with that of the trips before."""
    found = seconds_of_sum(size, Trait.CONTRACTS in node.traits, machine)
    if Trait.SELECTS | Trait.LIBRARY not in node.traits:
        return found
    *rows, count = graph.tensors[node.results[0]].type.shape
    return found + seconds_to_take(prod(rows) * 2 * count, 2 * count, count, machine) / 2  # for one of two results


def make_plan(
    graph: Graph,
    region: Region,
    loops: Loops,
    slice_bytes: int,
    is_big: Callable[[int], bool],
    machine: Machine,
    *,
    nested: Nested = "never",
) -> Plan | Refusal:
    """The plan for a region in which tensors vanish, or why there is none.

    slice_bytes: the maximum size of one tile. is_big: whether a tensor is over the threshold. machine: the target.
    nested: whether loops in the tiles may cut them along another dimension although a tile of one index is no larger
    than a slice; "asked" only marks a plan whose tiles could be cut so.
    """
    stages = loops.stages
    extents = [find_extents(graph, region, loops.producers, stage) for stage in stages]
    if refused := next((why for own in extents if (why := refuse_extents(graph, region, own))), None):
        return refused
    periods = find_periods(graph, region)
    if isinstance(periods, Refusal):
        return periods
    reads: list[Reads] = []
    for stage, own in zip(stages, extents, strict=True):
        found = find_reads(graph, region, loops.producers, stage, own, periods) if region.reaches() else {}
        if isinstance(found, Refusal):
            return found
        reads.append(found)
    bodies = [
        body_of(graph, region, loops.producers, stage, own, machine) for stage, own in zip(stages, extents, strict=True)
    ]
    for body in bodies:  # before any computation on all of it
        if (repeated := _repeated(body, slice_bytes // max(body.planned.bytes_per_index_inside(), 1))) is not None:
            return _refuse_repeated(graph, repeated)
    windows = [
        find_windows(graph, region.tiled, stages, stage, read) if region.reaches() else {}
        for stage, read in zip(stages, reads, strict=True)
    ]
    per_index = [
        max(bytes_per_index(body), _carried_per_index(graph, own), 1) for body, own in zip(bodies, windows, strict=True)
    ]
    find = find_seams if region.reaches() else find_borders
    borders = [find(region, stage) for stage in stages]
    for seams, read in zip(borders, reads, strict=True):
        ends = [(mapping.low, mapping.low + mapping.length) for (_, mapping), each in read.items() if each.period]
        if any(low > seams[0] or high < seams[-1] for low, high in ends):
            return Refusal(Reason("EX307", "its slices wrap around the ends of a part of it"))
    if any(len(each) > _MOST_BORDERS for each in borders):
        return Refusal(Reason("EX307", "the dimension is sliced, padded or concatenated at too many different offsets"))
    common = _Common(
        graph, region, loops, extents, periods, reads, windows, bodies, per_index, borders, nested == "allowed"
    )
    plain = _plan_in(common, slice_bytes, [slice_bytes] * len(bodies), is_big)
    sizes = None if nested == "never" else nested_sizes(graph, region, stages, bodies, per_index, slice_bytes)
    if sizes is None:
        return plain
    if nested == "asked":
        return replace(plain, may_nest=True) if isinstance(plain, Plan) else plain
    plans = [plan for plan in (plain, _plan_in(common, slice_bytes, sizes, is_big)) if isinstance(plan, Plan)]
    return min(plans, key=lambda plan: plan.rank(slice_bytes), default=plain)


@dataclass(frozen=True, slots=True)
class _Common:
    """What a region's plans have in common, whatever the lengths of their tiles; lists are by stage."""

    graph: Graph
    region: Region
    loops: Loops
    extents: list[Extents]
    periods: Mapping[int, int]
    reads: list[Reads]
    windows: list[Windows]
    bodies: list[Body]
    per_index: list[int]
    borders: list[list[int]]
    nested: bool


def _plan_in(common: _Common, slice_bytes: int, sizes: Sequence[int], is_big: Callable[[int], bool]) -> Plan | Refusal:
    """The plan with tiles of up to `sizes` bytes, by stage; what is larger than a slice is cut again in the bodies."""
    graph, region, loops, bodies = common.graph, common.region, common.loops, common.bodies
    extents, per_index, borders = common.extents, common.per_index, common.borders
    stages, outputs, machine = loops.stages, loops.outputs, bodies[0].planned.machine
    longest = [
        max(longest_tile(body, size, size // most, tile_of(seams, size // most)), _least_tile(own))
        for body, most, own, seams, size in zip(bodies, per_index, extents, borders, sizes, strict=True)
    ]
    too_big = max(
        1,
        *(-(-most * _least_tile(own) // slice_bytes) for most, own in zip(per_index, extents, strict=True)),
    )
    again = [-(-size // slice_bytes) for size in sizes]
    least = slice_bytes // _WORTH_OVERWRITING
    planned = [
        LoopPlan(stage, cut_runs(own, most), find_overwritten(graph, region.tiled, stages, stage, least))
        if not region.reaches()
        else overlapping_loop(graph, region, stages, stage, cut_runs(own, most), longer, common.periods, read, ahead)
        for stage, own, most, longer, read, ahead in zip(
            stages, borders, longest, extents, common.reads, common.windows, strict=True
        )
    ]
    if short := next((node for loop in planned if (node := _too_short(region, loop))), None):
        return Refusal(Reason("EX204", f"{graph.nodes[short].name} needs longer tiles"), short)
    for body, loop in zip(bodies, planned, strict=True):
        if (repeated := _repeated(body, loop.tile)) is not None:
            return _refuse_repeated(graph, repeated)
    planned = [
        replace(loop, scratch=bytes_once_cut(body, loop.tile, slice_bytes))
        for loop, body in zip(planned, bodies, strict=True)
    ]
    # An index that is too big is cut again along another dimension; the carries of a loop of the program are not.
    peak = max(
        body_peak(body, loop.tile) // (1 if body.planned.inside else max(too_big, inner))
        + largest_term(graph, region, loop.stage, machine)
        for body, loop, inner in zip(bodies, planned, again, strict=True)
    )
    if all(loop.trips < 2 for loop in planned):
        return Refusal(
            Reason("EX102", "XLA fuses it into its readers: all of it that is ever in memory fits one slice")
        )
    kept = {graph.nodes[output.node].results[output.result]: output for output in outputs}
    peak += sum(graph.tensors[value].type.bytes for value in kept if value not in graph.returned)
    if common.nested:  # whole dimensions compete with parts of them, which sum less
        peak += sum(widened_bytes(graph, region, value, output) for value, output in kept.items())
    done = sum(
        run.trips * body_work(body, run) for loop, body in zip(planned, bodies, strict=True) for run in loop.runs
    )
    replaced = {position for stage in stages for position in stage.nodes} - loops.copies
    return Plan(
        region.seed,
        region.mappings[region.seed],
        {position: region.tiled[position] for loop in planned for position in loop.stage.nodes},
        tuple(planned),
        loops.copies,
        loops.vanished,
        remaining_bytes(graph, region, outputs, planned, slice_bytes, is_big),
        peak,
        sum(_seconds(graph, *each[:2], too_big, each[2]) for each in zip(planned, bodies, again, strict=True)),
        max(too_big, *again),
        done - sum(work_of(graph, machine, replaced, any_shape=True).values()),
    )


def _carried_per_index(graph: Graph, windows: Windows) -> int:
    """The maximum bytes per index of the rows that a loop carries of tensors that it reads ahead."""
    sizes = (graph.tensors[value].type.bytes // window.mapping.length for value, window in windows.items())
    return max(sizes, default=0)


def _least_tile(extents: Extents) -> int:
    """The shortest worthwhile tile: of the largest overlap, a third is computed twice."""
    return max(1, *(2 * (before + after) for before, after in extents.values())) if extents else 1


def _repeated(body: Body, tile: int) -> int | None:
    """A loop of the program of which every tile of this length would repeat more than it shares."""
    for place, inside in body.planned.inside.items():
        if inside.repeats(max(tile, 1)) > _MOST_REPEATED:
            return body.planned.positions[place]
    return None


def _refuse_repeated(graph: Graph, position: int) -> Refusal:
    name = graph.nodes[position].name
    return Refusal(Reason("EX301", f"most of the work in a step of {name} would be the same in every slice"), position)


def _too_short(region: Region, loop: LoopPlan) -> int | None:
    """The first op, if any, whose own first tile would be shorter than its factor allows."""
    for position in loop.stage.nodes:
        tiled = region.tiled[position]
        least = tiled.factor.least
        if least < 2:
            continue
        [mapping, *_] = [mapping for mapping in tiled.operands if mapping is not None]
        own = [run for run in loop.runs if mapping.low <= run.start < mapping.low + mapping.length]
        if own[0].tile * tiled.scale < least or len(own) > 2:
            return position
    return None
