"""Comparisons for equality: they tell x from x made again, unless that has the very same bits.

The gradient of a maximum asks which elements are equal to it. When the maximum is complete, a second loop makes the
elements again; XLA rounds a division by a repeated row, or a dot, according to the shape of the tile.
"""

from __future__ import annotations

from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.graph import OUTSIDE, Graph, Node

from .regions import Region

_MOVING = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"})


def find_equality(graph: Graph, region: Region) -> int | None:
    """The first member that asks whether two computed floats are equal; None without one."""
    return next((position for position in sorted(region.members) if _asks(graph, graph.nodes[position])), None)


def _asks(graph: Graph, node: Node) -> bool:
    if node.name != "stablehlo.compare":
        return False
    direction = stablehlo.ComparisonDirectionAttr(node.op.attributes["comparison_direction"]).value
    if direction not in ("EQ", "NE") or not _is_float(graph, node.operands[0]):
        return False
    left, right = node.operands
    return left != right and not any(_is_constant(graph, operand) for operand in node.operands)


def _is_float(graph: Graph, value: int) -> bool:
    return graph.tensors[value].type.dtype.lstrip("complex<").startswith(("f", "bf"))


def _is_constant(graph: Graph, value: int) -> bool:
    producer = graph.tensors[value].producer
    while producer != OUTSIDE and graph.nodes[producer].name in _MOVING:
        producer = graph.tensors[graph.nodes[producer].operands[0]].producer
    return producer != OUTSIDE and graph.nodes[producer].name == "stablehlo.constant"
