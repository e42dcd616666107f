"""Library calls at the end of a region that are better made once: in its tiles they would copy a big operand.

    loop: x[:, i] = solve(l, l^T b[:, i])     ->     loop: y[:, i] = l^T b[:, i]     x = solve(l, y), over y

A library reads a matrix in its own layout. If another op of the loop reads the same matrix, XLA keeps it in one of the
two layouts and copies all of it in every trip; and every trip reads all of it for a few columns. The call's result is
as big as its operand, uses the same buffer and stays unsplit either way. Yet XLA may need one more copy, to transpose
the loop's result to the library's layout: a search for a memory limit tries both.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from exla_opt.ops.rules import DimMapping, Factor
from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import Graph, Node
from .growth import grow
from .region import Region


def without_calls(
    graph: Graph,
    region: Region,
    is_big: Callable[[int], bool],
    allowed: Callable[[Node, Factor], bool],
    hopeless: Container[tuple[int, DimMapping]],
    anchors: Container[int],
) -> Region:
    """The region without such calls; itself if there are none. The other parameters are those of `grow`."""
    calls = calls_at_end(graph, region, is_big)
    if not calls or region.seed in {value for call in calls for value in graph.nodes[call].results}:
        return region
    shorter = grow(
        graph,
        region.seed,
        region.mappings[region.seed],
        is_big,
        lambda node, factor: node.position not in calls and allowed(node, factor),
        hopeless,
        anchors=anchors,
    )
    for call in calls:
        reason = f"it is needed complete: {graph.nodes[call].name} would take longer in slices"
        shorter.blocked[call] = Reason("EX104", reason)
    return region if shorter.joined is not None else shorter


def calls_at_end(graph: Graph, region: Region, is_big: Callable[[int], bool]) -> frozenset[int]:
    """The positions of the region's calls that are better made after its loops."""
    return frozenset(
        position
        for position in region.tiled
        if Trait.LIBRARY in graph.nodes[position].traits
        and _overwrites(graph, region, graph.nodes[position], is_big)
        and _shares_matrix(graph, region, graph.nodes[position], is_big)
    )


def _overwrites(graph: Graph, region: Region, node: Node, is_big: Callable[[int], bool]) -> bool:
    """Whether only this op reads a big tensor, and its result has the same type and is not read in slices."""
    tensors, cut = graph.tensors, region.tiled[node.position].operands
    if len(node.results) != 1 or any(user in region.tiled for user, _ in tensors[node.results[0]].users):
        return False
    return any(
        mapping is not None
        and is_big(value)
        and tensors[value].type == tensors[node.results[0]].type
        and len(tensors[value].users) == 1
        and tensors[value].producer in region.tiled
        for value, mapping in zip(node.operands, cut, strict=True)
    )


def _shares_matrix(graph: Graph, region: Region, node: Node, is_big: Callable[[int], bool]) -> bool:
    """Whether every tile reads all of a big tensor, and another op of the region reads all of it as well."""
    cut = region.tiled[node.position].operands
    unsplit = [value for value, mapping in zip(node.operands, cut, strict=True) if mapping is None and is_big(value)]
    return any(
        user != node.position and user in region.tiled and region.tiled[user].operands[index] is None
        for value in unsplit
        for user, index in graph.tensors[value].users
        if index >= 0
    )
