"""What a loop's body keeps in memory, and how long its tile may therefore be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from exla_opt.ir.loops import trip_count
from exla_opt.ir.types import TensorType
from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.memory.block import Block, Operation
from exla_opt.memory.fusion import fuse
from exla_opt.memory.machine import Machine
from exla_opt.memory.operation import has_own_buffer, read_operation
from exla_opt.memory.reading import read_block, read_numbered
from exla_opt.memory.schedule import run_block
from exla_opt.memory.seconds import seconds_in_cache, seconds_of, seconds_of_ops
from exla_opt.memory.tiles import Bodies, CutBodies, once_cut
from exla_opt.ops.block_flow import ControlFactor
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.tiling import converts_operands
from exla_opt.ops.traits import Trait, traits_of

from ..graph import Graph, Node, TiledOp
from ..regions.extents import Extents
from ..regions.region import Producers, Region, Stage

# A body holds several tiles at a time; a gradient's may hold ten. More than this many make the tile shorter.
MOST_SLICES_ALIVE = 4
MOST_CARRIED_ALIVE = 2
# The length at which the model looks at a body to see what is written: neither one nor short enough to be fused.
_NOMINAL_TILE = 64


def operation_of(graph: Graph, node: Node, machine: Machine) -> Operation | None:
    """The op as the memory model sees it, by the graph's numbers; None for one whose result is its operand's buffer."""
    if node.position not in graph.operations:
        graph.operations[node.position] = _read_operation(graph, node, machine)
    return graph.operations[node.position]


def _read_operation(graph: Graph, node: Node, machine: Machine) -> Operation | None:
    if not has_own_buffer(node.op, graph.types):
        return None
    if node.name in CONTROL_FLOW:
        bodies = bodies_of(graph, node, machine)
        made = Operation(node.name.rpartition(".")[2], node.traits, node.operands[: node.own], node.results)
        return replace(made, captures=node.operands[node.own :], scratch=bodies.cost.bytes)
    return replace(read_operation(node.op, node.operands, node.results, graph.types), captures=node.captures)


def bodies_of(graph: Graph, node: Node, machine: Machine) -> Bodies:
    """The blocks of control flow as the memory model sees them, each read once; a loop's condition needs nothing."""
    if node.position not in graph.bodies:
        blocks = [block for region in node.op.regions for block in region.blocks]
        is_loop = Trait.IN_PLACE in node.traits
        read = [read_block(block, graph.types, machine) for block in blocks[is_loop:]]
        graph.bodies[node.position] = Bodies(read, (trip_count(node.op) or 1) if is_loop else 1, machine)
    return graph.bodies[node.position]


def _tile_shape(shape: tuple[int, ...], mapping: DimMapping | None, tile: int) -> tuple[int, ...]:
    if mapping is None:
        return shape
    return (*shape[: mapping.dim], min(tile, mapping.length) * mapping.inner, *shape[mapping.dim + 1 :])


class PlannedBlock:
    """A block that is only planned, with tensors numbered anew from those of the graph.

    kinds: the types of the complete tensors. mappings: how they are cut, for those that are tiles. longer: the indices
    that a tile has beside its own. inside, positions:
    by the place of an op, the bodies of control flow that is cut, and its position in the graph.
    """

    def __init__(self, graph: Graph, machine: Machine):
        self.graph = graph
        self.machine = machine
        self.ops: list[Operation] = []
        self.kinds: list[TensorType] = []
        self.mappings: list[DimMapping | None] = []
        self.longer: dict[int, int] = {}
        self.number: dict[int, int] = {}
        self.inside: dict[int, CutBodies] = {}
        self.positions: dict[int, int] = {}

    def fresh(self, kind: TensorType, mapping: DimMapping | None = None, longer: int = 0) -> int:
        """The number of a tensor that the graph does not have."""
        if longer:
            self.longer[len(self.kinds)] = longer
        self.kinds.append(kind)
        self.mappings.append(mapping)
        return len(self.kinds) - 1

    def of(self, value: int) -> int:
        """The number of a tensor of the graph."""
        if value not in self.number:
            self.number[value] = self.fresh(self.graph.tensors[value].type)
        return self.number[value]

    def add(self, name: str, operands: tuple[int, ...], result: int) -> int:
        """Add an op that the graph does not have, by numbers of this block; returns its result."""
        self.ops.append(Operation(name, traits_of(f"stablehlo.{name}"), operands, (result,)))
        return result

    def add_node(self, node: Node, replaced: Mapping[int, int], tiled: TiledOp | None = None) -> None:
        """Add an op of the graph. replaced: the numbers, by operand, of what it reads in the place of the graph's.

        tiled: how it is cut, if it is.
        """
        made = operation_of(self.graph, node, self.machine)
        read = [replaced[index] if index in replaced else self.of(value) for index, value in enumerate(node.operands)]
        if made is None:
            self.number.update(zip(node.results, read, strict=False))
            return
        results = tuple(map(self.of, made.results))
        own, captured = read[: node.own], read[node.own :] or [self.of(value) for value in made.captures]
        if tiled is not None and isinstance(tiled.factor, ControlFactor):
            bodies = bodies_of(self.graph, node, self.machine)
            key = (node.position, tiled.factor, tiled.scale)
            if key not in self.graph.inside:
                self.graph.inside[key] = CutBodies(bodies, tiled.factor, tiled.scale)
            self.inside[len(self.ops)] = self.graph.inside[key]
            self.positions[len(self.ops)] = node.position
        pairs = [*zip(node.operands, read, strict=True), *zip(made.results, results, strict=True)]
        self.ops.append(
            replace(
                made,
                operands=tuple(own[place % len(own)] for place in range(len(made.operands))),  # a square reads twice
                captures=tuple(captured),
                results=results,
                narrow=frozenset(number for value, number in pairs if value in made.narrow),
            )
        )

    def bytes_per_index_inside(self) -> int:
        """The most that one index takes among the tensors that the bodies of loops that are cut write to memory."""
        return max((inside.bytes_per_index() for inside in self.inside.values()), default=0)

    def block(self, returned: Iterable[int], tile: int = 0) -> Block:
        """The block with tiles of one length. returned: by numbers of this block."""
        shapes = [
            _tile_shape(kind.shape, mapping, tile + self.longer.get(number, 0))
            for number, (kind, mapping) in enumerate(zip(self.kinds, self.mappings, strict=True))
        ]
        sizes = [prod(shape) * kind.element_bytes for kind, shape in zip(self.kinds, shapes, strict=True)]
        ops = self.ops
        if self.inside:
            ops = [self.inside[place].in_tile(op, tile) if place in self.inside else op for place, op in enumerate(ops)]
        return Block(ops, shapes, sizes, returned=list(returned), dtypes=[kind.dtype for kind in self.kinds])


@dataclass(slots=True)
class Body:
    """A loop's body for the memory model.

    returned: what the loop carries. sliced: the bytes of all that is read from outside in slices. peaks, seconds: what
    `body_peak` and `body_seconds` have found, by the length of the tile.
    """

    planned: PlannedBlock
    returned: list[int]
    sliced: int
    peaks: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


def body_of(
    graph: Graph, region: Region, producers: Producers, stage: Stage, extents: Extents, machine: Machine
) -> Body:
    """The ops of one stage as the model sees them, with the slices that are cut from outside."""
    planned = PlannedBlock(graph, machine)
    inside = set(stage.nodes)
    cut: dict[tuple[int, DimMapping, int], int] = {}
    for position in stage.nodes:
        node, tiled = graph.nodes[position], region.tiled[position]
        replaced: dict[int, int] = {}
        for index, mapping in enumerate(tiled.operands):
            if mapping is None:
                continue
            value, producer = node.operands[index], producers[position][index]
            longer = sum(extents.get(position, (0, 0))) + sum(tiled.reach(index))
            if producer is None or producer not in inside:
                key = (value, mapping, longer)
                if key not in cut:
                    tile = planned.fresh(graph.tensors[value].type, mapping, longer)
                    cut[key] = planned.add("dynamic_slice", (), tile)
                replaced[index] = cut[key]
            elif sum(extents.get(producer, (0, 0))) > longer:  # a part of what others need more of
                part = planned.fresh(graph.tensors[value].type, mapping, longer)
                replaced[index] = planned.add("slice", (planned.of(value),), part)
            if tiled.factor.reaches and tiled.factor.operands[index] and sum(tiled.reach(index)):
                padded = planned.fresh(graph.tensors[value].type, mapping, longer)
                replaced[index] = planned.add("select", (replaced.get(index, planned.of(value)),), padded)
            if converts_operands(node.op, tiled.factor):
                shape = graph.tensors[value].type.shape
                wide = planned.fresh(TensorType(shape, "f32", 4 * prod(shape)), mapping, longer)
                narrow = replaced.get(index, planned.of(value))
                replaced[index] = planned.add("convert", (narrow,), wide)
        planned.add_node(node, replaced, tiled)
        for value, mapping in zip(node.results, tiled.results, strict=True):
            if planned.mappings[planned.of(value)] is None:  # a view is cut as what it is a view of
                planned.mappings[planned.of(value)] = mapping
                planned.longer[planned.of(value)] = sum(extents.get(position, (0, 0)))
    returned = []
    for output in stage.outputs:
        value = graph.nodes[output.node].results[output.result]
        made = planned.of(value)
        # What a loop of the program has summed up in a tile is added in place to what there is of all tiles.
        if output.mapping is not None or output.result in region.tiled[output.node].factor.summed:
            carried = planned.fresh(graph.tensors[value].type)
            made = planned.add("dynamic_update_slice", (carried, made), planned.fresh(graph.tensors[value].type))
        returned.append(made)
    sliced = sum(graph.tensors[value].type.bytes for value in {value for value, *_ in cut})
    return Body(planned, returned, sliced)


def written_tensors(graph: Graph, machine: Machine) -> set[int]:
    """The tensors of a block that the machine is expected to write to memory, if only in wider numbers."""
    block, number = read_numbered(graph.block, graph.types, machine)
    written = fuse(block, machine).tensors()
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
    """By position, the seconds of the arithmetic of the ops of a block that do any.

    only: the positions that are asked for. any_shape: as in `seconds_of_ops`.
    """
    planned = PlannedBlock(graph, machine)
    positions: list[int] = []
    for node in graph.nodes[:-1]:
        if only is None or node.position in only:
            planned.add_node(node, {})
            positions += [node.position] * (len(planned.ops) - len(positions))
    seconds = seconds_of_ops(planned.block(()), machine, any_shape)
    found = dict(zip(positions, seconds, strict=True))
    loops = {position: graph.bodies[position] for position in positions if position in graph.bodies}
    return found | {position: bodies.trips * bodies.arithmetic for position, bodies in loops.items()}


def body_work(body: Body, tile: int) -> float:
    """The seconds of the arithmetic of one trip with tiles of one length, as if products of few rows were fast."""
    planned = body.planned
    seconds = seconds_of_ops(planned.block(body.returned, tile), planned.machine, any_shape=True)
    return sum(
        planned.inside[place].work_in(tile) if place in planned.inside else each for place, each in enumerate(seconds)
    )


def bytes_per_index(body: Body) -> int:
    """The most that one index takes among the tensors that the body writes to memory."""
    planned = body.planned
    written = fuse(planned.block(body.returned, _NOMINAL_TILE), planned.machine).tensors()
    stored = [(planned.kinds[value].bytes, mapping) for value in written if (mapping := planned.mappings[value])]
    most = max((-(-size // mapping.length) for size, mapping in stored), default=0)
    return max(most, planned.bytes_per_index_inside())


def body_peak(body: Body, tile: int) -> int:
    """The predicted peak of the body with tiles of one length; what the loop carries is not counted."""
    if tile not in body.peaks:
        block = body.planned.block(body.returned, tile)
        body.peaks[tile] = run_block(block, body.planned.machine, held=block.returned).peak
    return body.peaks[tile]


def bytes_once_cut(body: Body, tile: int, slice_bytes: int) -> int:
    """The predicted peak of the body with loops of the program, once all that it makes is cut to slices; else 0."""
    planned = body.planned
    if not planned.inside:
        return 0
    block = planned.block(body.returned, tile)
    for place, inside in planned.inside.items():
        block.ops[place] = replace(block.ops[place], scratch=inside.bytes_once_cut(tile, slice_bytes))
    return run_block(once_cut(block, slice_bytes), planned.machine, held=block.returned).peak


def body_seconds(body: Body, tile: int) -> float:
    """The predicted seconds of one trip with tiles of one length.

    The tiles of a CPU are meant for its cache; between its plans what they write there makes no difference.
    """
    if tile not in body.seconds:
        machine = body.planned.machine
        price = seconds_in_cache if machine.kind == "cpu" else seconds_of
        body.seconds[tile] = price(body.planned.block(body.returned, tile), machine)
    return body.seconds[tile]


def longest_tile(body: Body, slice_bytes: int, longest: int) -> int:
    """The longest tile, of at most `longest` indices, whose body as a whole stays within a few slices.

    Loops of the program keep what they carry in all of their trips: of those there may be fewer.
    """
    if longest < 2:
        return 1
    fixed = body_peak(body, 1)
    grown = body_peak(body, longest)
    carries = any(Trait.IN_PLACE in body.planned.ops[place].traits for place in body.planned.inside)
    room = (MOST_CARRIED_ALIVE if carries else MOST_SLICES_ALIVE) * slice_bytes
    if grown <= room or grown <= fixed:
        return longest
    return max(min(longest, (room - fixed) * (longest - 1) // (grown - fixed)), longest // MOST_SLICES_ALIVE, 1)
