"""What a loop's body keeps in memory, and how long its tile may therefore be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.types import TensorType
from exla_opt.memory.planned import Operation, materialised, peak_bytes
from exla_opt.ops.rules import DimMapping
from exla_opt.ops.tiling import is_widened

from .graph import Graph, Node
from .region import Region
from .stages import Makers, Stage

# A body holds several tiles at a time; a gradient's may hold ten. More than this many make the tile shorter.
MOST_SLICES_ALIVE = 4
# The length at which the model looks at a body to tell what is written: neither one nor short enough to be fused.
_NOMINAL_TILE = 64


def short_name(node: Node) -> str:
    """The op's name without its dialect."""
    return node.name.rpartition(".")[2]


def operation_of(graph: Graph, node: Node) -> Operation:
    """The op as the memory model sees it."""
    name = short_name(node)
    reduced: tuple[int, ...] = ()
    if name == "reduce":
        shape = graph.tensors[node.operands[0]].type.shape
        reduced = tuple(shape[dim] for dim in ir.DenseI64ArrayAttr(node.op.attributes["dimensions"]))
    same = bool(node.operands and node.results) and (
        graph.tensors[node.operands[0]].type == graph.tensors[node.results[0]].type
    )
    return Operation(name, node.operands + node.captures, node.results, reduced, same_type=same)


def _tile_shape(shape: tuple[int, ...], mapping: DimMapping | None, tile: int) -> tuple[int, ...]:
    if mapping is None:
        return shape
    return (*shape[: mapping.dim], min(tile, mapping.length) * mapping.inner, *shape[mapping.dim + 1 :])


@dataclass(slots=True)
class Body:
    """A loop's body for the memory model: ops, and the mapping of every tensor that is a tile in it.

    own: the whole types of tensors that only the body has (slices, widened operands), by numbers of their own.
    peaks: what `body_peak` has found, by the length of the tile.
    """

    graph: Graph
    ops: list[Operation]
    mappings: dict[int, DimMapping]
    own: dict[int, TensorType]
    returned: set[int]
    peaks: dict[int, int] = field(default_factory=dict)

    def type_of(self, value: int) -> TensorType:
        """The type of the whole tensor that `value` is a tile of."""
        return self.own.get(value) or self.graph.tensors[value].type

    def add(self, name: str, operands: tuple[int, ...], kind: TensorType, mapping: DimMapping) -> int:
        """Add an op that only the body has; returns the number of its result."""
        fresh = len(self.graph.tensors) + len(self.own)
        self.own[fresh] = kind
        self.mappings[fresh] = mapping
        self.ops.append(Operation(name, operands, (fresh,)))
        return fresh


def body_of(graph: Graph, region: Region, makers: Makers, stage: Stage) -> Body:
    """The ops of one stage as the model sees them, with the slices that are cut from outside."""
    body = Body(graph, [], {}, {}, set())
    inside = set(stage.nodes)
    cut: dict[tuple[int, DimMapping], int] = {}
    for position in stage.nodes:
        node, member = graph.nodes[position], region.members[position]
        op = operation_of(graph, node)
        operands = list(op.operands)
        for index, mapping in enumerate(member.operands):
            if mapping is None:
                continue
            maker = makers[position][index]
            if maker is None or maker not in inside:
                key = (node.operands[index], mapping)
                if key not in cut:
                    cut[key] = body.add("dynamic_slice", (), graph.tensors[key[0]].type, mapping)
                operands[index] = cut[key]
            if node.name == "stablehlo.reduce" and is_widened(node.op, member.factor):
                shape = graph.tensors[node.operands[index]].type.shape
                operands[index] = body.add(
                    "convert", (operands[index],), TensorType(shape, "f32", 4 * prod(shape)), mapping
                )
        for value, mapping in zip(node.results, member.results, strict=True):
            if mapping is not None:
                body.mappings[value] = mapping
        body.ops.append(replace(op, operands=tuple(operands)))
    body.returned = {
        graph.nodes[output.node].results[output.result] for output in stage.outputs if output.mapping is None
    }
    return body


def _shapes(body: Body, tile: int) -> dict[int, tuple[int, ...]]:
    numbers = {value for op in body.ops for value in (*op.operands, *op.results)}
    return {value: _tile_shape(body.type_of(value).shape, body.mappings.get(value), tile) for value in numbers}


def bytes_per_index(body: Body) -> int:
    """The most that one index takes among the tensors that the body writes to memory."""
    written = materialised(body.ops, _shapes(body, _NOMINAL_TILE), body.returned).last_read
    stored = [value for value in written if value in body.mappings]
    return max((-(-body.type_of(value).bytes // body.mappings[value].length) for value in stored), default=0)


def body_peak(body: Body, tile: int) -> int:
    """The predicted peak of the body with tiles of one length; what the loop carries is not counted."""
    if tile not in body.peaks:
        shapes = _shapes(body, tile)
        sizes = {value: prod(shape) * body.type_of(value).element_bytes for value, shape in shapes.items()}
        body.peaks[tile] = peak_bytes(body.ops, shapes, sizes, body.returned, free=body.returned)
    return body.peaks[tile]


def longest_tile(body: Body, slice_bytes: int, longest: int) -> int:
    """The longest tile, of at most `longest` indices, whose body as a whole stays within a few slices."""
    if longest < 2:
        return 1
    fixed = body_peak(body, 1)
    grown = body_peak(body, longest)
    room = MOST_SLICES_ALIVE * slice_bytes
    if grown <= room or grown <= fixed:
        return longest
    return max(min(longest, (room - fixed) * (longest - 1) // (grown - fixed)), longest // MOST_SLICES_ALIVE, 1)
