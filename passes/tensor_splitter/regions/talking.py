"""Loops of the program that communicate with other devices, and must not do so more often than before."""

from __future__ import annotations

from collections.abc import Sequence

from exla_opt.ops.collectives import talks
from exla_opt.ops.traits import Trait

from ..graph import Graph
from .region import Stage


def find_resent(graph: Graph, stages: Sequence[Stage]) -> int | None:
    """The first loop of the program that communicates with other devices in more than one of the loops."""
    seen: set[int] = set()
    for stage in stages:
        talking = {
            position
            for position in stage.nodes
            if Trait.CONTROL_FLOW in graph.nodes[position].traits and talks(graph.nodes[position].op)
        }
        if both := seen & talking:
            return min(both)
        seen |= talking
    return None
