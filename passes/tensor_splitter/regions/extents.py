"""How much longer than its own part each tile of a region is, where ops read more than their part. Analysis only.

A tile of a chain of convolutions, [a, b) of the last one, needs rows [a - 1, b + 1) of the one before it, and [a - 2,
b + 2) of the one before that. Those rows are computed twice, by two tiles; beyond the ends of the tensor they are no
rows at all, and what reads them puts its padding in their place (`exla_opt/ops/overlaps.py`).

What a loop brings out or adds up is its own part alone, so nothing is written or counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from exla_opt.ops.tiling import may_reach
from exla_opt.remarks import Reason

from ..graph import Graph
from .loops import Refusal
from .region import Producers, Region, Stage

# By position of an op: the region's indices before and after its own that its tiles have.
Extents = Mapping[int, tuple[int, int]]
_NONE = (0, 0)


def find_extents(graph: Graph, region: Region, producers: Producers, stage: Stage) -> Extents:
    """The extents of the ops of one stage that have any."""
    if not region.reaches():
        return {}
    found: dict[int, tuple[int, int]] = {}
    for position in reversed(stage.nodes):
        before, after = found.get(position, _NONE)
        tiled = region.tiled[position]
        for index, producer in enumerate(producers[position]):
            if producer is None or tiled.operands[index] is None:
                continue
            more, further = tiled.reach(index)
            own = found.get(producer, _NONE)
            found[producer] = (max(own[0], before + more), max(own[1], after + further))
    return {position: extent for position, extent in found.items() if extent != _NONE}


def refuse_extents(graph: Graph, region: Region, extents: Extents) -> Refusal | None:
    """Why the ops of a region cannot have longer tiles, if so: one of them cannot, or they are shifted or too short."""
    if not region.reaches():
        return None
    low, high = region.low, region.high
    for position, tiled in sorted(region.tiled.items()):
        node = graph.nodes[position]
        held = [mapping for mapping in (*tiled.operands, *tiled.results) if mapping is not None]
        if any((mapping.low, mapping.low + mapping.length) != (low, high) for mapping in held):
            return Refusal(Reason("EX307", "its slices are shifted against each other, and overlap"), position)
        if position in extents and not (tiled.factor.reaches or may_reach(node.op, tiled.factor)):
            return Refusal(Reason("EX301", f"{node.name} cannot be computed beyond its ends"), position)
    return None
