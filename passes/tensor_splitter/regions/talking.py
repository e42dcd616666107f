"""Ops that communicate with other devices, and must not do so more often than before."""

from __future__ import annotations

from collections.abc import Sequence

from exla_opt.ops.collectives import talks
from exla_opt.ops.traits import Trait

from ..graph import Graph, Node
from .region import Region, Stage

_MAY_TALK = Trait.CONTROL_FLOW | Trait.COLLECTIVE


def find_sent(graph: Graph, region: Region) -> frozenset[int]:
    """The results of a region's collectives, which other loops must read rather than compute again."""
    nodes = (graph.nodes[position] for position in region.tiled)
    return frozenset(value for node in nodes if Trait.COLLECTIVE in node.traits for value in node.results)


def find_resent(graph: Graph, stages: Sequence[Stage]) -> int | None:
    """The first collective, or loop of the program with one, that is in more than one of the loops."""
    seen: set[int] = set()
    for stage in stages:
        talking = {position for position in stage.nodes if _talks(graph.nodes[position])}
        if both := seen & talking:
            return min(both)
        seen |= talking
    return None


def _talks(node: Node) -> bool:
    return bool(node.traits & _MAY_TALK) and talks(node.op)
