"""Plans: one way to split one region, with everything the loop builder needs and a predicted cost.

A plan is a frozen value: it refers to nodes and tensors by number and touches no IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2

from exla_opt.memory.machine import Machine
from exla_opt.memory.seconds import seconds_of_sum
from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import OUTSIDE, Graph, TiledOp
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
from ..regions.region import Output, Region, Stage
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
    longest_tile,
    work_of,
)
from .loop_plan import LoopPlan, overlapping_loop
from .runs import cut_runs, find_borders, tile_of

_MOST_BORDERS = 6
# A loop of the program is cut if all tiles together compute no more than this many times its arithmetic.
_MOST_REPEATED = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to split one region.

    seed, mapping: the tensor that it was requested for, and how it is cut.
    copies: the tiled ops that the loops only repeat: the originals stay for their other readers.
    vanished: the big tensors that exist only in tiles afterwards. remaining: bytes of big tensors of the region that
    stay unsplit, are larger than what exists anyway, and are no results, or results that fail to overwrite what they
    could. peak: predicted bytes alive in the worst loop, outputs included. seconds: predicted time, for comparison
    only. too_big: how many times the split size one index takes. added: seconds of arithmetic of the loops beyond the
    ops that they replace.
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


def _seconds(graph: Graph, loop: LoopPlan, body: Body, too_big: int) -> float:
    """Rough seconds of one loop; if an index is too big, each trip is again a loop of that many trips."""
    machine = body.planned.machine
    seconds = sum(run.trips * body_seconds(body, run.tile) for run in loop.runs)
    nested = too_big > 1
    trips = loop.trips * (1 + too_big * nested)
    kernels = loop.trips * (too_big - 1) * len(loop.stage.nodes)
    seconds += trips * machine.seconds_per_trip + kernels * machine.seconds_per_kernel
    if machine.kind == "cpu":  # tiles stay in the cache; unsplit tensors come from memory once per loop
        seconds += body.sliced / machine.bytes_per_second
    for output in loop.stage.outputs:
        node = graph.nodes[output.node]
        size = graph.tensors[node.results[output.result]].type.bytes
        if output.mapping is None:
            seconds += loop.trips * too_big * seconds_of_sum(size, Trait.CONTRACTS in node.traits, machine)
        else:  # written by the inner loop, then by the outer one
            seconds += (nested + (machine.kind == "cpu")) * size / machine.bytes_per_second
    return seconds


def _exists_anyway(graph: Graph) -> int:
    """The bytes of a function's largest argument or result: splitting smaller tensors costs time and gains nothing."""
    if graph.nested:
        return 0  # a loop's inputs may have any size: it reads slices
    return max((graph.tensors[value].type.bytes for value in graph.arguments | graph.returned), default=0)


def _stays_unsplit(graph: Graph, region: Region, outputs: list[Output], is_big: Callable[[int], bool]) -> set[int]:
    """Big tensors of the region that exist unsplit after the split, except function arguments and results."""
    stays = {
        value
        for output in outputs
        if is_big(value := graph.nodes[output.node].results[output.result]) and value not in graph.returned
    }
    for value in region.mappings:
        producer = graph.tensors[value].producer
        if is_big(value) and producer != OUTSIDE and producer not in region.tiled:
            stays.add(value)
    return stays


def make_plan(
    graph: Graph,
    region: Region,
    loops: Loops,
    slice_bytes: int,
    is_big: Callable[[int], bool],
    machine: Machine,
) -> Plan | Refusal:
    """The plan for a region in which tensors vanish, or why there is none.

    slice_bytes: the maximum size of one tile. is_big: whether a tensor is over the threshold. machine: the target.
    """
    stages, outputs = loops.stages, loops.outputs
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
    longest = [
        max(longest_tile(body, slice_bytes, slice_bytes // most, tile_of(seams, slice_bytes // most)), _least_tile(own))
        for body, most, own, seams in zip(bodies, per_index, extents, borders, strict=True)
    ]
    too_big = max(
        1,
        *(-(-most * _least_tile(own) // slice_bytes) for most, own in zip(per_index, extents, strict=True)),
    )
    planned = [
        LoopPlan(stage, cut_runs(own, most), find_overwritten(graph, region.tiled, stages, stage))
        if not region.reaches()
        else overlapping_loop(graph, region, stages, stage, cut_runs(own, most), longer, periods, read, ahead)
        for stage, own, most, longer, read, ahead in zip(stages, borders, longest, extents, reads, windows, strict=True)
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
        body_peak(body, loop.tile) // (1 if body.planned.inside else too_big)
        + _largest_term(graph, region, loop.stage, machine)
        for body, loop in zip(bodies, planned, strict=True)
    )
    if all(loop.trips < 2 for loop in planned):
        return Refusal(
            Reason("EX102", "XLA fuses it into its readers: all of it that is ever in memory fits one slice")
        )
    kept = {graph.nodes[output.node].results[output.result] for output in outputs}
    peak += sum(graph.tensors[value].type.bytes for value in kept if value not in graph.returned)
    anyway = min(_exists_anyway(graph), MOST_SLICES_ALIVE * slice_bytes)
    stays = [graph.tensors[value].type.bytes for value in _stays_unsplit(graph, region, outputs, is_big)]
    stays += [graph.tensors[value].type.bytes for value in _not_overwritten(graph, planned)]
    remaining = sum(size for size in stays if size > anyway)
    done = sum(
        run.trips * body_work(body, run.tile) for loop, body in zip(planned, bodies, strict=True) for run in loop.runs
    )
    replaced = {position for stage in stages for position in stage.nodes} - loops.copies
    return Plan(
        region.seed,
        region.mappings[region.seed],
        {position: region.tiled[position] for loop in planned for position in loop.stage.nodes},
        tuple(planned),
        loops.copies,
        loops.vanished,
        remaining,
        peak,
        sum(_seconds(graph, loop, body, too_big) for loop, body in zip(planned, bodies, strict=True)),
        too_big,
        done - sum(work_of(graph, machine, replaced, any_shape=True).values()),
    )


def _carried_per_index(graph: Graph, windows: Windows) -> int:
    """The maximum bytes per index of the rows that a loop carries of tensors that it reads ahead."""
    sizes = (graph.tensors[value].type.bytes // window.mapping.length for value, window in windows.items())
    return max(sizes, default=0)


def _not_overwritten(graph: Graph, loops: Sequence[LoopPlan]) -> set[int]:
    """The results that could overwrite one of their operands, and do not: there are two buffers at a time."""
    written = {
        value: (output.node, output.result) in loop.overwritten
        for loop in loops
        for output in loop.stage.outputs
        if (value := graph.nodes[output.node].results[output.result]) in graph.overwritten
    }
    return {value for value, in_place in written.items() if not in_place}


def _least_tile(extents: Extents) -> int:
    """The shortest worthwhile tile: of the largest overlap, a third is computed twice."""
    return max(1, *(2 * (before + after) for before, after in extents.values())) if extents else 1


def _largest_term(graph: Graph, region: Region, stage: Stage, machine: Machine) -> int:
    """The bytes of the largest result of one tile that is then added to a carry of the loop."""
    most = 0
    for output in stage.outputs:
        node = graph.nodes[output.node]
        in_place = machine.accumulates and Trait.CONTRACTS in node.traits
        if region.tiled[output.node].factor.kind is Kind.REDUCING and not in_place:
            most = max(most, graph.tensors[node.results[output.result]].type.bytes)
    return most


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
