"""Tensors below the threshold that are split with one over it: the same numbers in another type. Analysis only."""

from __future__ import annotations

from collections.abc import Callable

from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph


def find_twins(graph: Graph, is_over: Callable[[int], bool]) -> frozenset[int]:
    """The floats below the threshold that are converted to or from floats over it, and elementwise functions of those.

    The bf16 scores of an attention and their f32 softmax must be split together: if only the f32 part is cut, which is
    fused and never written, all of the bf16 tensor stays in memory, and the loop's copies of it too.
    """
    twins: set[int] = set()
    for node in graph.nodes:
        if Trait.POINTWISE | Trait.CHEAP not in node.traits or len(node.operands) != 1:
            continue
        pair = (node.operands[0], node.results[0])
        if all(_is_float(graph, value) for value in pair) and any(map(is_over, pair)):
            twins.update(value for value in pair if not is_over(value))
    queue = list(twins)
    while queue:
        shape = graph.tensors[value := queue.pop()].type.shape
        for other in _computed_with(graph, value):
            alike = graph.tensors[other].type.shape == shape and _is_float(graph, other)
            if alike and other not in twins and not is_over(other):
                twins.add(other)
                queue.append(other)
    return frozenset(twins)


def _is_float(graph: Graph, value: int) -> bool:
    return graph.tensors[value].type.dtype.startswith(("f", "bf"))


def _computed_with(graph: Graph, value: int) -> list[int]:
    """The results of elementwise ops on a tensor, and the operands of one that computes it."""
    tensor = graph.tensors[value]
    found: list[int] = []
    for position in {tensor.producer, *(user for user, _ in tensor.users)} - {OUTSIDE}:
        node = graph.nodes[position]
        if Trait.POINTWISE in node.traits:
            found += [*node.operands, *node.results]
    return found
