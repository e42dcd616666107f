"""The ops between a region and the tensors that its barriers hold unsplit."""

from __future__ import annotations

from collections.abc import Callable

from exla_opt.ops.barriers import BarrierRule
from exla_opt.ops.factor import unsplit
from exla_opt.ops.traits import Trait

from ..graph import Graph, TiledOp
from .region import Region

# The maximum number of ops for every barrier, so that planning stays linear in the size of a network.
_MOST_BEHIND = 64


def add_behind_barriers(graph: Graph, region: Region, follow: Callable[[int], bool]) -> None:
    """Add the small ops between the unsplit results of a region's barrier and the region, such as converted weights.

    They are the same in every tile. Outside, they and all their readers would wait for the loop of the barrier.
    """
    held = [position for position in region.tiled if isinstance(graph.nodes[position].rule, BarrierRule)]
    added: list[int] = []
    queue = [
        value
        for position in held
        for value, mapping in zip(graph.nodes[position].results, region.tiled[position].results, strict=True)
        if mapping is None
    ]

    def is_same(value: int) -> bool:
        producer = graph.tensors[value].producer
        tiled = region.tiled.get(producer)
        return tiled is None or tiled.factor.is_same(graph.tensors[value].result_index)

    extent = region.high
    while queue:
        for user, _ in graph.tensors[queue.pop()].users:
            node = graph.nodes[user]
            if user in region.tiled or user == graph.terminator or len(added) >= _MOST_BEHIND * len(held):
                continue
            if not node.traits & (Trait.POINTWISE | Trait.MOVES) or Trait.IN_PLACE in node.traits:
                continue
            if any(map(follow, (*node.operands, *node.results))) or not all(map(is_same, node.operands)):
                continue
            factor = unsplit(extent, len(node.operands), len(node.results))
            region.tiled[user] = TiledOp(user, factor, 1, 0, factor.operands, factor.results)
            added.append(user)
            queue += node.results
    for position in sorted(added, reverse=True):
        users = (user for value in graph.nodes[position].results for user, _ in graph.tensors[value].users)
        if not any(user in region.tiled for user in users):
            del region.tiled[position]
