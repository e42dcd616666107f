"""A planned block, for the memory model: ops of the graph, unsplit or in tiles, and new ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod

from exla_opt.ir.loops import trip_count
from exla_opt.ir.types import TensorType
from exla_opt.ir.walk import CONTROL_FLOW
from exla_opt.memory.block import Block, Operation
from exla_opt.memory.machine import Machine
from exla_opt.memory.operation import has_own_buffer, read_operation
from exla_opt.memory.reading import read_block
from exla_opt.memory.tiles import Bodies, CutBodies
from exla_opt.ops.block_flow import ControlFactor
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait, traits_of

from ..graph import Graph, Node, TiledOp


def operation_of(graph: Graph, node: Node) -> Operation | None:
    """The op for the memory model, in the graph's numbers; None if its result is its operand's buffer.

    The memory of the bodies of control flow is left out.
    """
    if node.position not in graph.operations:
        graph.operations[node.position] = _read_operation(graph, node)
    return graph.operations[node.position]


def _read_operation(graph: Graph, node: Node) -> Operation | None:
    if not has_own_buffer(node.op, graph.types):
        return None
    if node.name in CONTROL_FLOW:
        name, own = node.name.rpartition(".")[2], node.own
        return Operation(name, node.traits, node.operands[:own], node.results, node.operands[own:])
    made = read_operation(node.op, node.operands, node.results, graph.types)
    return replace(made, captures=node.captures) if node.captures else made


def bodies_of(graph: Graph, node: Node, machine: Machine) -> Bodies:
    """The blocks of control flow for the memory model, each read once; a loop's condition needs nothing."""
    if node.position not in graph.bodies:
        blocks = [block for region in node.op.regions for block in region.blocks]
        is_loop = Trait.IN_PLACE in node.traits
        read = [read_block(block, graph.types, machine) for block in blocks[is_loop:]]
        graph.bodies[node.position] = Bodies(read, (trip_count(node.op) or 1) if is_loop else 1, machine)
    return graph.bodies[node.position]


def _bytes_of(bodies: Bodies) -> int:
    """The bytes of the unsplit bodies."""
    return bodies.cost.bytes


def _tile_shape(shape: tuple[int, ...], mapping: DimMapping | None, tile: int) -> tuple[int, ...]:
    if mapping is None:
        return shape
    return (*shape[: mapping.dim], min(tile, mapping.length) * mapping.inner, *shape[mapping.dim + 1 :])


class PlannedBlock:
    """A planned block, whose tensors are renumbered from those of the graph.

    kinds: the types of the complete tensors. mappings: how tiles are cut. longer: the extra indices of a tile. inside,
    positions: by the position of an op, the bodies of cut control flow, and its position in the graph. scratch: the
    bytes of the bodies of control flow that is not cut.
    """

    def __init__(self, graph: Graph, machine: Machine, scratch: Callable[[Bodies], int] = _bytes_of):
        self.graph = graph
        self.machine = machine
        self.scratch = scratch
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
        """Add an op that the graph does not have, by numbers of this block; return its result."""
        mapping, shape = self.mappings[result], self.kinds[result].shape
        together = 1 if mapping is None else prod(shape[mapping.dim + 1 :])
        self.ops.append(Operation(name, traits_of(f"stablehlo.{name}"), operands, (result,), together=together))
        return result

    def add_node(self, node: Node, replaced: Mapping[int, int], tiled: TiledOp | None = None) -> None:
        """Add an op of the graph. replaced: by operand, the numbers of tensors that it reads instead of the graph's.

        tiled: how it is cut, if it is.
        """
        made = operation_of(self.graph, node)
        read = [replaced[index] if index in replaced else self.of(value) for index, value in enumerate(node.operands)]
        if made is None:
            self.number.update(zip(node.results, read, strict=False))
            return
        results = tuple(map(self.of, made.results))
        own, captured = read[: node.own], read[node.own :] or [self.of(value) for value in made.captures]
        scratch = made.scratch
        if tiled is not None and isinstance(tiled.factor, ControlFactor):
            bodies = bodies_of(self.graph, node, self.machine)
            key = (node.position, tiled.factor, tiled.scale)
            if key not in self.graph.inside:
                self.graph.inside[key] = CutBodies(bodies, tiled.factor, tiled.scale)
            self.inside[len(self.ops)] = self.graph.inside[key]
            self.positions[len(self.ops)] = node.position
        elif node.name in CONTROL_FLOW:
            scratch = self.scratch(bodies_of(self.graph, node, self.machine))
        operands = tuple([own[place % len(own)] for place in range(len(made.operands))])  # a square reads twice
        narrow = made.narrow
        if narrow:
            pairs = [*zip(node.operands, read, strict=True), *zip(made.results, results, strict=True)]
            narrow = frozenset(number for value, number in pairs if value in made.narrow)
        self.ops.append(made.renumbered(operands, results, tuple(captured), narrow, scratch))

    def is_in(self, op: Operation, index: int) -> bool:
        """Whether the tile at an index of the region runs an op; one of overlapping tiles counts as if it does."""
        cut = [number for number in op.results if self.mappings[number]] or list(op.operands)
        found = [mapping for number in cut if (mapping := self.mappings[number]) is not None]
        return any(self.longer.values()) or all(each.low <= index < each.low + each.length for each in found)

    def bytes_per_index_inside(self) -> int:
        """The maximum bytes per index of the tensors that the bodies of cut loops write to memory."""
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
