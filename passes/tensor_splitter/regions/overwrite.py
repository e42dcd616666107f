"""Results that a loop writes over an operand: a donated argument, or a carry of a loop.

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

from exla_opt.ops.rules import DimMapping, Kind
from exla_opt.ops.traits import Trait

from ..graph import Graph, TiledOp
from .region import Output, Stage

Overwritten = Mapping[tuple[int, int], int]


def find_overwritten(graph: Graph, tiled: Mapping[int, TiledOp], stages: Sequence[Stage], stage: Stage) -> Overwritten:
    """The outputs of one of the stages, by node and result, that may start from the tensor that they overwrite.

    If that tensor has other readers, later or unsplit, the loop would start with a copy of it.
    """
    later = frozenset(node for other in stages if other.number > stage.number for node in other.nodes)
    found: dict[tuple[int, int], int] = {}
    for output in stage.outputs:
        before = graph.overwritten.get(graph.nodes[output.node].results[output.result])
        if before is None or output.mapping is None or tiled[output.node].factor.kind is not Kind.INDEPENDENT:
            continue
        if any(user in later or user > stage.nodes[-1] for user, _ in graph.tensors[before].users):
            continue
        if not _is_read_along(graph, tiled, stage, before, output.mapping):
            continue
        if _is_read_first(graph, stage, before, output, {position for position, _ in found}):
            found[output.node, output.result] = before
    return found


def _is_read_along(graph: Graph, tiled: Mapping[int, TiledOp], stage: Stage, value: int, mapping: DimMapping) -> bool:
    """Whether a stage reads a tensor, and only in the slices of the mapping: no longer ones, that are overwritten."""
    inside = frozenset(stage.nodes)
    read = [(user, index) for user, index in graph.tensors[value].users if user in inside]
    return bool(read) and all(
        index >= 0 and tiled[user].operands[index] == mapping and tiled[user].reach(index) == (0, 0)
        for user, index in read
    )


def _is_read_first(graph: Graph, stage: Stage, value: int, output: Output, overwritten: Collection[int]) -> bool:
    """Whether every kernel that reads the old slice runs before the one that writes the new one, or is that one.

    overwritten: the nodes whose outputs are written in place, and read back. See NOTE [Order of reads and writes].
    """
    inside, before = frozenset(stage.nodes), _ancestors(graph, stage, output.node)
    written = {other.node for other in stage.outputs}
    queue, seen = [value], {value}
    while queue:
        users = {user for user, _ in graph.tensors[queue.pop()].users} & inside
        fused = {user for user in users if graph.nodes[user].traits & (Trait.POINTWISE | Trait.MOVES)}
        if users - fused and before.isdisjoint(users - fused):
            return False
        if not fused & written <= {output.node} | (before & set(overwritten)):
            return False
        results = {result for user in fused - written for result in graph.nodes[user].results}
        queue += results - seen
        seen |= results
    return True


def _ancestors(graph: Graph, stage: Stage, position: int) -> frozenset[int]:
    """The ops of a stage that one of them depends on, including that one."""
    found = {position}
    for node in reversed(stage.nodes):
        if any(user in found for value in graph.nodes[node].results for user, _ in graph.tensors[value].users):
            found.add(node)
    return frozenset(found)
