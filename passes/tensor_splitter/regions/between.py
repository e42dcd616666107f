"""The small ops of a region: those that lead from it back into it, and the cheap ones that feed it. Analysis only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from exla_opt.ops.rules import DimMapping, Factor, Kind
from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, TILE_MARK, Graph, Node, TiledOp, tiled_from_result
from .region import Region

# Ops directly between the big tensors of a region are near them: the search stops after this many ops, and eight for
# every op of the region itself, so that planning stays linear in the size of a network.
_MOST_BETWEEN = 64


def _wanted_slices(region: Region, nodes: Iterable[int], graph: Graph) -> dict[int, DimMapping]:
    """The tensors that `nodes` read in slices and that no op of the region computes."""
    wanted: dict[int, DimMapping] = {}
    for position in nodes:
        tiled = region.tiled[position]
        for value, mapping in zip(graph.nodes[position].operands, tiled.operands, strict=True):
            if mapping is not None and value not in region.mappings:
                wanted.setdefault(value, mapping)
    return wanted


def add_between(
    graph: Graph, region: Region, follow: Callable[[int], bool], allowed: Callable[[Node, Factor], bool]
) -> None:
    """Add the small ops that lead from the region back into it, and the cheap ones that feed it.

    Tracing back from tensors that tiled ops read in slices finds the candidates; a forward pass over them keeps those
    that a tiled op feeds (a softmax's row maximum on its way back into the matrix) or that are cheap.
    """
    first = min(region.tiled)
    wanted = _wanted_slices(region, sorted(region.tiled), graph)
    candidates: dict[int, TiledOp] = {}
    queue = deque(wanted)
    most = _MOST_BETWEEN + 8 * len(region.tiled)
    while queue and len(candidates) < most:
        value = queue.popleft()
        tensor = graph.tensors[value]
        position = tensor.producer
        if position == OUTSIDE or position in region.tiled or position in candidates:
            continue
        node = graph.nodes[position]
        if position < first and Trait.CHEAP not in node.traits:
            continue
        if any(follow(other) for other in (*node.operands, *node.results)):
            continue  # another region's big tensor: this region ends here
        tiled = tiled_from_result(node, tensor.result_index, wanted[value])
        if tiled is None or tiled.factor.kind is not Kind.INDEPENDENT or not allowed(node, tiled.factor):
            continue
        if tiled.factor.summed or TILE_MARK in node.op.attributes:
            continue
        if any(wanted.get(v, s) != s for v, s in zip(node.results, tiled.results, strict=True)):
            continue
        candidates[position] = tiled
        for operand, mapping in zip(node.operands, tiled.operands, strict=True):
            if mapping is not None and operand not in wanted and operand not in region.mappings:
                wanted[operand] = mapping
                queue.append(operand)

    made: dict[int, DimMapping | None] = {}
    from_region: set[int] = set()
    for position, tiled in sorted((region.tiled | candidates).items()):
        node = graph.nodes[position]
        read = [
            value
            for value, mapping in zip(node.operands, tiled.operands, strict=True)
            if mapping is not None and made.get(value) == mapping
        ]
        if position in region.tiled or not from_region.isdisjoint(read):
            from_region.update(node.results)
        if position in region.tiled or read or Trait.CHEAP in node.traits:
            made.update(zip(node.results, tiled.results, strict=True))
            region.tiled[position] = tiled
    for position in candidates:
        if position not in region.tiled:
            continue
        tiled = region.tiled[position]
        for value, mapping in zip(graph.nodes[position].results, tiled.results, strict=True):
            if mapping is not None:
                region.mappings.setdefault(value, mapping)
    _drop_unread(graph, region, candidates, from_region)


def _drop_unread(graph: Graph, region: Region, candidates: dict[int, TiledOp], from_region: set[int]) -> None:
    """Remove added ops whose slices no tiled op reads any more, and those that can run before the loops for others.

    Ops that depend on no op of the region can run before its loops. Their other readers would wait for a loop.
    """
    for position in sorted(candidates, reverse=True):
        if position not in region.tiled:
            continue
        node = graph.nodes[position]
        reads = [
            user in region.tiled and index >= 0 and region.tiled[user].operands[index] == region.mappings.get(value)
            for value in node.results
            for user, index in graph.tensors[value].users
        ]
        before = Trait.CHEAP not in node.traits and from_region.isdisjoint(node.results)
        if not (all(reads) if before else any(reads)):
            del region.tiled[position]
            for value in node.results:
                region.mappings.pop(value, None)
