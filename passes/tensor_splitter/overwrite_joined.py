"""Writes a result slice by slice over a joined tensor that it is computed from.

    d = concatenate(dot(b, p), dot(a, p)); s = sum(d); result = d - s   ->   loop over slices: d[i] = d[i] - s

In slices, the loop that computes the result would compute all of d a second time, because the first loop that does so
only keeps its sum. But the result needs a buffer as large as d in any case. So d is stored there, and overwritten. XLA
does so itself, unless another loop reads d before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ops.ranges import ADD, JOIN, PAD
from exla_opt.ops.rules import DimMapping, Kind, read_rules
from exla_opt.ops.tiling import build_tile
from exla_opt.ops.traits import Trait
from exla_opt.options import Options

from .graph import OUTSIDE, TILE_MARK, Graph, Node, TiledOp, read_graphs, tiled_from_result
from .plans.runs import balanced_tile


@dataclass(frozen=True, slots=True)
class _Last:
    """The last ops of a result, from a joined tensor on, by position; how each is cut. tile: indices of a slice."""

    result: int
    joined: int
    tiled: Mapping[int, TiledOp]
    mapping: DimMapping
    tile: int


def overwrite_joined(module: ir.Module, options: Options) -> bool:
    """Write results over joined tensors; return whether there was one."""
    graphs = read_graphs(module, read_rules(module, options.op_rules))
    outer = [graph for graph in graphs if not graph.nested]
    found = [
        (graph, last) for graph in outer for value in sorted(graph.returned) if (last := _find(graph, value, options))
    ]
    for graph, last in found:
        _write(graph, last)
    return bool(found)


def _joined_dim(graph: Graph, node: Node) -> int | None:
    """The dimension along which an op joins tensors: a concatenation, or a sum of pads."""
    if node.name == JOIN:
        return integer(node.op, "dimension")
    sources = [graph.tensors[value].producer for value in node.operands]
    if node.name != ADD or any(source == OUTSIDE or graph.nodes[source].name != PAD for source in sources):
        return None
    low, high = (integers(graph.nodes[sources[0]].op, f"edge_padding_{name}", []) for name in ("low", "high"))
    dims = [dim for dim, edges in enumerate(zip(low, high, strict=True)) if any(edges)]
    return dims[0] if len(dims) == 1 else None


def _find(graph: Graph, result: int, options: Options) -> _Last | None:
    """The last ops of a result over the threshold, if they are elementwise and read a joined tensor of its type."""
    kind = graph.tensors[result].type
    readers = graph.tensors[result].users
    if kind.bytes <= options.size_threshold or len(readers) > 1 or result in graph.overwritten:
        return None
    inside: set[int] = set()
    joined: dict[int, int] = {}
    stack = [result]
    while stack:
        value = stack.pop()
        place = graph.tensors[value].producer
        if place == OUTSIDE or place in inside or value in joined or _is_small(graph, value, options):
            continue
        node = graph.nodes[place]
        dim = _joined_dim(graph, node)
        if dim is not None and graph.tensors[value].type == kind:
            joined[value] = dim
        elif Trait.POINTWISE in node.traits or Trait.FREE in node.traits:
            inside.add(place)
            stack += node.operands
        else:
            return None
    if len(joined) != 1:
        return None
    [(value, dim)] = joined.items()
    mapping = DimMapping(dim, kind.shape[dim])
    tiled = {place: _cut(graph.nodes[place], mapping) for place in sorted(inside)}
    tile = balanced_tile(mapping.length, max(options.slice_bytes * mapping.length // kind.bytes, 1))
    if any(each is None for each in tiled.values()) or mapping.length % tile or tile == mapping.length:
        return None
    if not _is_read_before(graph, value, inside, result):
        return None
    return _Last(result, value, {place: each for place, each in tiled.items() if each is not None}, mapping, tile)


def _is_small(graph: Graph, value: int, options: Options) -> bool:
    return graph.tensors[value].type.bytes <= options.size_threshold


def _cut(node: Node, mapping: DimMapping) -> TiledOp | None:
    """The op with its result, and all operands that carry the indices, cut as `mapping`; not if it transposes.

    Other slices of the joined tensor than the one that is written may already be overwritten. A broadcast transposes if
    its operand has as many dimensions, in another order.
    """
    tiled = tiled_from_result(node, 0, mapping)
    if tiled is None or tiled.factor.kind is not Kind.INDEPENDENT or tiled.factor.reaches or tiled.scale != 1:
        return None
    carried = [(value, each) for value, each in zip(node.op.operands, tiled.operands, strict=True) if each is not None]
    rank = len(build.shape_of(node.op.results[0]))
    is_alike = all(
        (each.low, each.length, each.inner) == (0, mapping.length, 1)
        and (each.dim == mapping.dim or len(build.shape_of(value)) < rank)
        for value, each in carried
    )
    return tiled if is_alike and len(node.results) == 1 else None


def _is_read_before(graph: Graph, value: int, inside: set[int], result: int) -> bool:
    """Whether others read the joined tensor too, all of them for the result: none reads it after it is overwritten."""
    others = {user for user, _ in graph.tensors[value].users} - inside
    before: set[int] = set()
    stack = [result]
    while stack:
        place = graph.tensors[stack.pop()].producer
        if place != OUTSIDE and place not in before:
            before.add(place)
            stack += graph.nodes[place].operands
    return bool(others) and others <= before


def _write(graph: Graph, last: _Last) -> None:
    op = graph.nodes[graph.tensors[last.result].producer].op
    original = graph.tensors[last.result].value
    with ir.InsertionPoint(op), op.location:
        initial = [build.scalar_i32(0), graph.tensors[last.joined].value]
        kinds = [value.type for value in initial]
        loop = stablehlo.WhileOp(kinds, initial)
        loop.operation.attributes[TILE_MARK] = ir.UnitAttr.get()
        condition, body = (region.blocks.append(*kinds) for region in loop.operation.regions)
        with ir.InsertionPoint(condition):
            trips = build.scalar_i32(last.mapping.length // last.tile)
            stablehlo.return_([build.less_than(condition.arguments[0], trips)])
        with ir.InsertionPoint(body):
            counter, written = body.arguments
            start = stablehlo.multiply(counter, build.scalar_i32(last.tile))
            made = _tile(graph, last, start, written)
            updated = build.update_along(written, made, last.mapping.dim, start)
            stablehlo.return_([stablehlo.add(counter, build.scalar_i32(1)), updated])
    original.replace_all_uses_with(loop.operation.results[1])
    for place in sorted(last.tiled, reverse=True):
        inner = graph.nodes[place].op
        if not any(True for _ in inner.results[0].uses):
            inner.erase()


def _tile(graph: Graph, last: _Last, start: ir.Value, written: ir.Value) -> ir.Value:
    """A slice of the result, from the slice of the joined tensor that is still in its place."""
    made: dict[tuple[int, int], ir.Value] = {}  # by tensor and the dimension along which it is cut

    def read(value: int, mapping: DimMapping) -> ir.Value:
        if (value, mapping.dim) not in made:
            source = written if value == last.joined else graph.tensors[value].value
            made[value, mapping.dim] = build.slice_along(source, mapping.dim, start, last.tile)
        return made[value, mapping.dim]

    own = (0, last.tile)
    for place, tiled in last.tiled.items():
        node = graph.nodes[place]
        pairs = zip(node.operands, tiled.operands, node.op.operands, strict=True)
        operands = [value if mapping is None else read(number, mapping) for number, mapping, value in pairs]
        ranges = [None if mapping is None else own for mapping in tiled.operands]
        with node.op.location:
            [result] = build_tile(node.op, tiled.factor, operands, start, ranges, [own])
        made[node.results[0], last.mapping.dim] = result
    return made[last.result, last.mapping.dim]
