"""The memory of a loop's body, and the tile length that follows from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from exla_opt.ir.types import TensorType
from exla_opt.memory.fusion import fuse
from exla_opt.memory.machine import Machine
from exla_opt.memory.operation import has_own_buffer
from exla_opt.memory.reading import read_numbered
from exla_opt.memory.schedule import run_block
from exla_opt.memory.seconds import seconds_in_cache, seconds_of, seconds_of_ops
from exla_opt.memory.tiles import once_cut
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.tiling import converts_operands
from exla_opt.ops.traits import Trait

from ..graph import Graph
from ..regions.extents import Extents
from ..regions.region import Producers, Region, Stage
from .planned_block import PlannedBlock, operation_of
from .runs import TileRun

# A body holds several tiles at a time; a gradient's may hold ten. More than this many make the tile shorter.
MOST_SLICES_ALIVE = 4
MOST_CARRIED_ALIVE = 2
# A region's ops are near each other: the seconds of this many are computed at once.
_TOGETHER = 32
# The tile length for finding written tensors in a body: neither one nor short enough to be fused.
_NOMINAL_TILE = 64


@dataclass(slots=True)
class Body:
    """A loop's body for the memory model.

    returned: the tensors that the loop carries. sliced: the bytes of all outer tensors that are read in slices. peaks,
    seconds: cached results of `body_peak` and `body_seconds`, by the length of the tile.
    """

    planned: PlannedBlock
    returned: list[int]
    sliced: int
    peaks: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


def body_of(
    graph: Graph, region: Region, producers: Producers, stage: Stage, extents: Extents, machine: Machine
) -> Body:
    """The ops of one stage for the memory model, with the slices of outer tensors."""
    planned = PlannedBlock(graph, machine)
    inside = set(stage.nodes)
    cut: dict[tuple[int, DimMapping, int], int] = {}
    complete: dict[int, int] = {}
    for position in stage.nodes:
        node, tiled = graph.nodes[position], region.tiled[position]
        replaced: dict[int, int] = {}
        for index, mapping in enumerate(tiled.operands):
            value, producer = node.operands[index], producers[position][index]
            if mapping is None:
                if value in stage.awaited:  # the loop may compute slices of it as well
                    if value not in complete:
                        complete[value] = planned.fresh(graph.tensors[value].type)
                    replaced[index] = complete[value]
                continue
            longer = sum(extents.get(position, (0, 0))) + sum(tiled.reach(index))
            if producer is None or producer not in inside:
                key = (value, mapping, longer)
                if key not in cut:
                    tile = planned.fresh(graph.tensors[value].type, mapping, longer)
                    cut[key] = planned.add("dynamic_slice", (), tile)
                replaced[index] = cut[key]
            elif sum(extents.get(producer, (0, 0))) > longer:  # a part of a longer tile for others
                part = planned.fresh(graph.tensors[value].type, mapping, longer)
                replaced[index] = planned.add("slice", (planned.of(value),), part)
            if node.rule.overlaps and tiled.factor.reaches and tiled.factor.operands[index] and sum(tiled.reach(index)):
                padded = planned.fresh(graph.tensors[value].type, mapping, longer)
                replaced[index] = planned.add("select", (replaced.get(index, planned.of(value)),), padded)
            if converts_operands(node.op, tiled.factor):
                shape = graph.tensors[value].type.shape
                wide = planned.fresh(TensorType(shape, "f32", 4 * prod(shape)), mapping, longer)
                narrow = replaced.get(index, planned.of(value))
                replaced[index] = planned.add("convert", (narrow,), wide)
        planned.add_node(node, replaced, tiled)
        for value, mapping in zip(node.results, tiled.results, strict=True):
            if planned.mappings[planned.of(value)] is None:  # a view is cut as its operand is
                planned.mappings[planned.of(value)] = mapping
                planned.longer[planned.of(value)] = sum(extents.get(position, (0, 0)))
    returned = []
    for output in stage.outputs:
        value = graph.nodes[output.node].results[output.result]
        made = planned.of(value)
        # A partial sum that a loop of the program computes in a tile is added in place to that of all tiles.
        if output.mapping is not None or output.result in region.tiled[output.node].factor.summed:
            carried = planned.fresh(graph.tensors[value].type)
            made = planned.add("dynamic_update_slice", (carried, made), planned.fresh(graph.tensors[value].type))
        returned.append(made)
    sliced = sum(graph.tensors[value].type.bytes for value in {value for value, *_ in cut})
    return Body(planned, returned, sliced)


def written_tensors(graph: Graph, machine: Machine) -> set[int]:
    """The tensors of a block that the machine is expected to write to memory, possibly in wider numbers."""
    if graph.written is None:
        graph.written = _written_tensors(graph, machine)
    return graph.written


def _written_tensors(graph: Graph, machine: Machine) -> set[int]:
    block, number = read_numbered(graph.block, graph.types, machine, is_deep=False)
    written = fuse(block, machine, sums_alone=True).tensors()
    return {
        value
        for node in graph.nodes
        if node.results and has_own_buffer(node.op, graph.types)
        for value in node.results
        for at in (number[graph.tensors[value].value],)
        if not written.isdisjoint((at, block.widened.get(at, at), block.rounded.get(at, at)))
    }


def work_of(
    graph: Graph, machine: Machine, only: Collection[int] | None = None, any_shape: bool = False
) -> dict[int, float]:
    """By position, the seconds of the arithmetic of a block's ops, if any.

    only: the positions that are needed. any_shape: as in `seconds_of_ops`.
    """
    known, other = graph.work.setdefault(any_shape, {}), graph.work.get(not any_shape, {})
    wanted = range(graph.terminator) if only is None else sorted(only)
    planned = PlannedBlock(graph, machine, lambda bodies: 0)
    positions: list[int] = []
    for position in wanted:
        if position in other and Trait.CONTRACTS not in graph.nodes[position].traits:
            known[position] = other[position]
        if position not in known:
            known[position] = None
            if operation_of(graph, graph.nodes[position]) is None:
                continue  # a view, whose readers read it in its own shape
            planned.add_node(graph.nodes[position], {})
            positions += [position] * (len(planned.ops) - len(positions))
    if positions:
        known.update(zip(positions, seconds_of_ops(planned.block(()), machine, any_shape), strict=True))
    for position in positions:
        if (bodies := graph.bodies.get(position)) is not None:
            known[position] = bodies.trips * bodies.arithmetic
    return {position: seconds for position in wanted if (seconds := known[position]) is not None}


class WorkOf(Mapping[int, float]):
    """As `work_of` for all ops, computed on demand: few of them are in any region."""

    def __init__(self, graph: Graph, machine: Machine):
        self.graph = graph
        self.machine = machine

    def __getitem__(self, position: int) -> float:
        if position not in self.graph.work.get(False, {}):
            first = position - position % _TOGETHER
            work_of(self.graph, self.machine, range(first, min(first + _TOGETHER, self.graph.terminator)))
        found = self.graph.work[False][position]
        if found is None:
            raise KeyError(position)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(work_of(self.graph, self.machine))

    def __len__(self) -> int:
        return len(work_of(self.graph, self.machine))


def body_work(body: Body, run: TileRun) -> float:
    """The seconds of the arithmetic of one trip of a run, as if products of few rows were fast.

    A trip leaves out the ops that none of its indices belong to: of joined halves, each run computes one.
    """
    planned, tile = body.planned, run.tile
    seconds = seconds_of_ops(planned.block(body.returned, tile), planned.machine, any_shape=True)
    return sum(
        planned.inside[place].work_in(tile) if place in planned.inside else each
        for place, each in enumerate(seconds)
        if planned.is_in(planned.ops[place], run.start)
    )


def bytes_per_index(body: Body) -> int:
    """The maximum bytes per index of the tensors that the body writes to memory."""
    planned = body.planned
    written = fuse(planned.block(body.returned, _NOMINAL_TILE), planned.machine, sums_alone=True).tensors()
    stored = [(planned.kinds[value].bytes, mapping) for value in written if (mapping := planned.mappings[value])]
    most = max((-(-size // mapping.length) for size, mapping in stored), default=0)
    return max(most, planned.bytes_per_index_inside())


def kernels_of(body: Body) -> int:
    """The number of tensors that a trip writes to memory: about one kernel for each."""
    planned = body.planned
    return len(fuse(planned.block(body.returned, _NOMINAL_TILE), planned.machine, sums_alone=True).tensors())


def body_peak(body: Body, tile: int) -> int:
    """The predicted peak of the body with this tile length, without the tensors that the loop carries."""
    if tile not in body.peaks:
        block = body.planned.block(body.returned, tile)
        body.peaks[tile] = run_block(block, body.planned.machine, held=block.returned).peak
    return body.peaks[tile]


def bytes_once_cut(body: Body, tile: int, slice_bytes: int) -> int:
    """The predicted peak of a body with loops of the program, after its own tensors are cut to slices; else 0."""
    planned = body.planned
    if not planned.inside:
        return 0
    block = planned.block(body.returned, tile)
    for place, inside in planned.inside.items():
        block.ops[place] = replace(block.ops[place], scratch=inside.bytes_once_cut(tile, slice_bytes))
    return run_block(once_cut(block, slice_bytes), planned.machine, held=block.returned).peak


def body_seconds(body: Body, tile: int) -> float:
    """The predicted seconds of one trip with this tile length.

    The tiles of a CPU are sized for its cache; its plans do not differ in what they write there.
    """
    if tile not in body.seconds:
        machine = body.planned.machine
        price = seconds_in_cache if machine.kind == "cpu" else seconds_of
        body.seconds[tile] = price(body.planned.block(body.returned, tile), machine)
    return body.seconds[tile]


def longest_tile(body: Body, slice_bytes: int, longest: int, equal: int) -> int:
    """The longest tile, of at most `longest` indices, whose body stays within a few slices in total.

    Loops of the program keep their carries in all of their trips: of those there may be fewer. equal: the length of
    equal tiles of at most `longest` indices, which are the ones that a loop computes.
    """
    if longest < 2:
        return 1
    carries = any(Trait.IN_PLACE in body.planned.ops[place].traits for place in body.planned.inside)
    room = (MOST_CARRIED_ALIVE if carries else MOST_SLICES_ALIVE) * slice_bytes
    # Without loops of the program, a peak grows no faster than its tile: mostly the loop as it will be is simulated.
    if not body.planned.inside and body_peak(body, equal) * longest <= room * equal:
        return longest
    grown = body_peak(body, longest)
    if grown <= room:
        return longest
    fixed = body_peak(body, 1)
    if grown <= fixed:
        return longest
    return max(min(longest, (room - fixed) * (longest - 1) // (grown - fixed)), longest // MOST_SLICES_ALIVE, 1)
