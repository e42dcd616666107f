"""Comparisons for equality: they tell x from x made again, unless that has the very same bits.

The gradient of a maximum asks which elements are equal to it. When the maximum is complete, a later loop makes the
elements again, and XLA may round them otherwise there: a dot by the shape of the tile, a division by a repeated row by
what it is fused with. Inside one loop both sides have the same x.

For the same reason only one loop may ask. The gradient of a clip asks where x is at the bound. Where x is there by its
nature, as the diagonal of a correlation matrix is 1, two loops could answer differently, and sums that would cancel do
not. That holds for the loops of two plans as well: plans that make the same values are not built in one round where
one of them asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.graph import OUTSIDE, Graph, Node

from .stages import Makers, Stage

_MOVING = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"})


def find_unequal(graph: Graph, makers: Makers, stage: Stage) -> int | None:
    """The first comparison of computed floats in a loop whose two sides read different values of earlier loops."""
    read: dict[int, frozenset[int]] = {}  # of what the loop makes: the values of earlier loops that went into it

    def sources(value: int, maker: int | None) -> frozenset[int]:
        if maker is not None and value in read:
            return read[value]
        return frozenset((value,)) & stage.awaited

    for position in stage.nodes:
        node = graph.nodes[position]
        of_each = [sources(value, maker) for value, maker in zip(node.operands, makers[position], strict=True)]
        if _asks(graph, node) and of_each[0] != of_each[1]:
            return position
        read.update(dict.fromkeys(node.results, frozenset[int]().union(*of_each)))
    return None


def find_repeated(graph: Graph, stages: Sequence[Stage]) -> int | None:
    """The first comparison of floats for equality that more than one loop makes."""
    seen: set[int] = set()
    for stage in stages:
        asking = {position for position in stage.nodes if compares_equal(graph, position)}
        if both := seen & asking:
            return min(both)
        seen |= asking
    return None


def compares_equal(graph: Graph, position: int) -> bool:
    """Whether the op at a position asks if two floats are equal; not if one is itself, that is, a number."""
    node = graph.nodes[position]
    if node.name != "stablehlo.compare":
        return False
    direction = stablehlo.ComparisonDirectionAttr(node.op.attributes["comparison_direction"]).value
    left, right = node.operands
    return direction in ("EQ", "NE") and left != right and _is_float(graph, left)


def _asks(graph: Graph, node: Node) -> bool:
    """Whether the op asks if two computed floats are equal."""
    return compares_equal(graph, node.position) and not any(_is_constant(graph, operand) for operand in node.operands)


def _is_float(graph: Graph, value: int) -> bool:
    return graph.tensors[value].type.dtype.lstrip("complex<").startswith(("f", "bf"))


def _is_constant(graph: Graph, value: int) -> bool:
    producer = graph.tensors[value].producer
    while producer != OUTSIDE and graph.nodes[producer].name in _MOVING:
        producer = graph.tensors[graph.nodes[producer].operands[0]].producer
    return producer != OUTSIDE and graph.nodes[producer].name == "stablehlo.constant"
