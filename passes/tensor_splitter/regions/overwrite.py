"""Results that a loop writes over an operand: a donated argument, a carry of a loop, or a tensor that it alone reads.

    %new = subtract %p, %step             while ... (%p' = %p) { write(%p', read(%p', i) - step(i), i) }
    %sum = add %carried, dot(%a, %b)      while ... (%s' = %carried) { write(%s', read(%s', i) + dot(i), i) }

A loop whose output starts from zeros needs a second buffer of that size, as its operand must live until the loop ends.
One that starts from that operand needs none: every tile reads its own slice before that is overwritten.

NOTE [Order of reads and writes]: XLA copies all of a carried tensor in every trip unless all kernels that read it must
run before the one that writes it. Fusion gives the slice to each of its elementwise readers, up to the op that writes a
tensor or that does not fuse. So all of these must be the writing op or lead to it; and readers of the new slice read it
back (`emit`), or it would be recomputed from the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from exla_opt.ops.barriers import BarrierRule
from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph, Node, TiledOp
from .region import Output, Stage

Overwritten = Mapping[tuple[int, int], int]


def find_overwritten(
    graph: Graph, tiled: Mapping[int, TiledOp], stages: Sequence[Stage], stage: Stage, least: int | None = None
) -> Overwritten:
    """The outputs of one of the stages, by node and result, that may start from the tensor that they overwrite.

    If that tensor has other readers, later or unsplit, the loop would start with a copy of it.
    least: the bytes of the smallest tensors that the block computes, and that are overwritten; None if none of them
    are, only donated arguments and carries.
    """
    later = frozenset(node for other in stages if other.number > stage.number for node in other.nodes)
    found: dict[tuple[int, int], int] = {}
    for output in stage.outputs:
        if output.mapping is None or tiled[output.node].factor.kind is not Kind.INDEPENDENT:
            continue
        number = graph.nodes[output.node].results[output.result]
        for before in _candidates(graph, stage, number, least):
            readers = {user for user, _ in graph.tensors[before].users}
            if before in found.values() or readers & later or max(readers, default=0) > stage.nodes[-1]:
                continue
            if not _is_read_along(graph, tiled, stage, before, output):
                continue
            if _is_read_first(graph, tiled, stage, before, output, {position for position, _ in found}):
                found[output.node, output.result] = before
                break
    return found


def read_in(graph: Graph, stage: Stage, value: int) -> tuple[int, int]:
    """The first op of a stage that reads a tensor, and the operand."""
    inside = frozenset(stage.nodes)
    return min((user, index) for user, index in graph.tensors[value].users if user in inside)


def _candidates(graph: Graph, stage: Stage, number: int, least: int | None) -> list[int]:
    """What an output may overwrite: its argument or carry; else what the block computes, and only the stage reads."""
    inside, kind = frozenset(stage.nodes), graph.tensors[number].type
    if number in graph.overwritten:
        return [graph.overwritten[number]]
    if least is None or kind.bytes < least:
        return []
    read = {value for node in stage.nodes for value in graph.nodes[node].operands}
    return [
        value
        for value in sorted(read - graph.returned)
        if (found := graph.tensors[value].type).bytes == kind.bytes
        and found.dtype == kind.dtype
        and _has_own_buffer(graph, value, inside)
        and all(user in inside for user, _ in graph.tensors[value].users)
    ]


def _has_own_buffer(graph: Graph, value: int, inside: Collection[int]) -> bool:
    """Whether an op of the block, but none of these, computes the tensor, and writes it."""
    producer = graph.tensors[value].producer
    if producer == OUTSIDE or producer in inside:
        return False
    return not graph.nodes[producer].traits & (Trait.GENERATES | Trait.VIEW)


def _is_read_along(graph: Graph, tiled: Mapping[int, TiledOp], stage: Stage, value: int, output: Output) -> bool:
    """Whether a stage reads a tensor, and only in the slices of an output: no longer ones, that are overwritten."""
    inside, kind = frozenset(stage.nodes), graph.tensors[value].type
    made = graph.tensors[graph.nodes[output.node].results[output.result]].type
    read = [(user, index) for user, index in graph.tensors[value].users if user in inside]
    return bool(read) and all(
        index >= 0
        and _are_same(kind.shape, tiled[user].operands[index], made.shape, output.mapping)
        and tiled[user].reach(index) == (0, 0)
        for user, index in read
    )


def _are_same(one: Sequence[int], cut: DimMapping | None, other: Sequence[int], made: DimMapping | None) -> bool:
    """Whether the tiles of two tensors, given by their shapes and mappings, are the same elements of one buffer."""
    if cut is None or made is None or cut.length != made.length or prod(one[: cut.dim]) != prod(other[: made.dim]):
        return False
    steps = [prod(shape[each.dim + 1 :]) * each.inner for shape, each in ((one, cut), (other, made))]
    return steps[0] == steps[1] and cut.low == made.low


def _is_read_first(
    graph: Graph,
    tiled: Mapping[int, TiledOp],
    stage: Stage,
    value: int,
    output: Output,
    overwritten: Collection[int],
) -> bool:
    """Whether every kernel that reads the old slice runs before the one that writes the new one, or is that one.

    One kernel that does not fuse is enough: the slice is written for it, and the others read that. But if some tiles
    leave ops out, as on one side of a concatenate, it may not lead to the writing op there.
    overwritten: the nodes whose outputs are written in place, and read back. See NOTE [Order of reads and writes].
    """
    inside, before = frozenset(stage.nodes), _ancestors(graph, stage, output.node)
    leaves_out = _leaves_out(tiled, stage)
    written = {other.node for other in stage.outputs}
    queue, seen = [value], {value}
    while queue:
        users = {user for user, _ in graph.tensors[queue.pop()].users} & inside
        fused = {user for user in users if _is_fused(graph.nodes[user])}
        others = users - fused
        if others and (leaves_out or before.isdisjoint(others)):
            return False
        if not fused & written <= {output.node} | (before & set(overwritten)):
            return False
        results = {result for user in fused - written for result in graph.nodes[user].results}
        queue += results - seen
        seen |= results
    return True


def _is_fused(node: Node) -> bool:
    """Whether XLA fuses an op into its readers, or drops it: a CPU's compiler keeps no barrier."""
    return bool(node.traits & (Trait.POINTWISE | Trait.MOVES)) or isinstance(node.rule, BarrierRule)


def _leaves_out(tiled: Mapping[int, TiledOp], stage: Stage) -> bool:
    """Whether some tiles have no part of a tensor, and leave out the ops on it."""
    mappings = (each for node in stage.nodes for each in (*tiled[node].operands, *tiled[node].results))
    return len({(mapping.low, mapping.length) for mapping in mappings if mapping is not None}) > 1


def _ancestors(graph: Graph, stage: Stage, position: int) -> frozenset[int]:
    """The ops of a stage that one of them depends on, including that one."""
    found = {position}
    for node in reversed(stage.nodes):
        if any(user in found for value in graph.nodes[node].results for user, _ in graph.tensors[value].users):
            found.add(node)
    return frozenset(found)
