"""What a loop's body keeps in memory, and how long its tile may therefore be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.analysis.factors import Slot
from exla_opt.analysis.graph import Graph, Node
from exla_opt.analysis.memory import Operation, materialised, peak_bytes

from .regions import Region
from .stages import Stage, tile_local

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


def _tile_shape(shape: tuple[int, ...], slot: Slot | None, tile: int) -> tuple[int, ...]:
    if slot is None:
        return shape
    return (*shape[: slot.dim], min(tile, slot.length) * slot.inner, *shape[slot.dim + 1 :])


@dataclass(slots=True)
class Body:
    """A loop's body for the memory model: ops, and the slot of every tensor that is a tile in it."""

    ops: list[Operation]
    slots: dict[int, Slot]
    returned: set[int]
    types: dict[int, int]  # a slice's own number -> the tensor it is cut from


def body_of(graph: Graph, region: Region, stage: Stage) -> Body:
    body = Body([], {}, set(), {})
    inside = set(stage.nodes)
    fresh = len(graph.tensors)
    cut: dict[tuple[int, Slot], int] = {}
    for position in stage.nodes:
        node, member = graph.nodes[position], region.members[position]
        op = operation_of(graph, node)
        operands = list(op.operands)
        for index, slot in enumerate(member.operands):
            if slot is None:
                continue
            maker = tile_local(graph, region, member, index)
            if maker is not None and maker in inside:
                continue
            key = (node.operands[index], slot)
            if key not in cut:
                cut[key] = fresh
                body.types[fresh] = node.operands[index]
                body.slots[fresh] = slot
                body.ops.append(Operation("dynamic_slice", (), (fresh,)))
                fresh += 1
            operands[index] = cut[key]
        for value, slot in zip(node.results, member.results, strict=True):
            if slot is not None:
                body.slots[value] = slot
        body.ops.append(replace(op, operands=tuple(operands)))
    body.returned = {graph.nodes[output.node].results[output.result] for output in stage.outputs if output.slot is None}
    return body


def _shapes(graph: Graph, body: Body, tile: int) -> dict[int, tuple[int, ...]]:
    numbers = {value for op in body.ops for value in (*op.operands, *op.results)}
    return {
        value: _tile_shape(graph.tensors[body.types.get(value, value)].type.shape, body.slots.get(value), tile)
        for value in numbers
    }


def bytes_per_index(graph: Graph, body: Body) -> int:
    """The most that one index takes among the tensors that the body writes to memory."""
    shapes = _shapes(graph, body, _NOMINAL_TILE)
    written = materialised(body.ops, shapes, body.returned).last_read
    stored = {value for value in written if value in body.slots}
    return max((-(-graph.tensors[body.types.get(v, v)].type.bytes // body.slots[v].length) for v in stored), default=0)


def body_peak(graph: Graph, body: Body, tile: int) -> int:
    shapes = _shapes(graph, body, tile)
    sizes = {
        value: prod(shape) * graph.tensors[body.types.get(value, value)].type.element_bytes
        for value, shape in shapes.items()
    }
    return peak_bytes(body.ops, shapes, sizes, body.returned, free=body.returned)


def longest_tile(graph: Graph, body: Body, slice_bytes: int, longest: int) -> int:
    """The longest tile, of at most `longest` indices, whose body as a whole stays within a few slices."""
    if longest < 2:
        return 1
    fixed = body_peak(graph, body, 1)
    grown = body_peak(graph, body, longest)
    room = MOST_SLICES_ALIVE * slice_bytes
    if grown <= room or grown <= fixed:
        return longest
    return max(min(longest, (room - fixed) * (longest - 1) // (grown - fixed)), longest // MOST_SLICES_ALIVE, 1)
