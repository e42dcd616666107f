"""Reads ahead of an overwritten tensor, if a loop's tiles overlap.

    %new = step(%u)        ->      while ... (%u' = %u, %near = rows [-1, tile + 1) of %u) {
    return %new                      %u'' = write(%u', step(%near), i)
                                     return %u'', [last rows of %near, next rows of %u'']

A tile of a stencil reads a few rows before and after its own. If it overwrites its operand, the next tile would find
new rows where it needs old ones. So the loop carries the rows that a tile reads; the further ones that the next tile
reads come from the tensor that the tile was written to: they are all after it, and still old. That way nothing reads
the overwritten tensor before it is written in a trip, so XLA has no reason to copy it.

For circular reads, the first rows are kept from before the loop, for the last tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exla_opt.ops.rules import DimMapping, Kind

from ..graph import Graph, TiledOp
from .extents import Reads
from .region import Stage


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an overwritten tensor that a loop carries: a tile, and the rows that are read before and after it.

    node, result: the output that overwrites it. mapping: how both are cut. period: as in `extents.Read`.
    """

    node: int
    result: int
    mapping: DimMapping
    extent: tuple[int, int]
    period: int


# By overwritten tensor.
Windows = Mapping[int, Window]


def find_windows(
    graph: Graph, tiled: Mapping[int, TiledOp], stages: Sequence[Stage], stage: Stage, reads: Reads
) -> Windows:
    """The tensors that one of the stages may overwrite, each by the output that replaces it.

    Such a tensor must have no later readers outside, and the stage must read all of it in the same cut.
    """
    inside = frozenset(stage.nodes)
    later = {node for other in stages if other.number > stage.number for node in other.nodes}
    found: dict[int, Window] = {}
    for output in stage.outputs:
        before = graph.overwritten.get(graph.nodes[output.node].results[output.result])
        if before is None or output.mapping is None or tiled[output.node].factor.kind is not Kind.INDEPENDENT:
            continue
        users = graph.tensors[before].users
        if any(user in later or user > stage.nodes[-1] for user, _ in users):
            continue
        within = [(user, index) for user, index in users if user in inside]
        if not within or any(index < 0 or tiled[user].operands[index] != output.mapping for user, index in within):
            continue
        read = reads[before, output.mapping]
        found[before] = Window(output.node, output.result, output.mapping, read.extent, read.period)
    return found
