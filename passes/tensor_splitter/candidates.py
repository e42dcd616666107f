"""What may be cut, and how: the ways to cut one tensor, and the tensors that are one thing with a big one."""

from __future__ import annotations

from collections.abc import Callable

from exla_opt.ops.rules import DimMapping
from exla_opt.ops.traits import Trait

from .graph import OUTSIDE, Graph


def candidate_mappings(graph: Graph, value: int) -> list[DimMapping]:
    """The ways to cut one tensor: each dim, and the coarser steps that a neighbouring reshape asks for."""
    tensor = graph.tensors[value]
    mappings = []
    for dim, size in enumerate(tensor.type.shape):
        if size < 2:
            continue
        inners = {1}
        made = graph.nodes[tensor.producer].rule.at_result(tensor.result_index, dim)
        if made and (mapping := made.results[tensor.result_index]):
            inners.add(mapping.inner)
        for user, index in tensor.users:
            read = graph.nodes[user].rule.at_operand(index, dim) if index >= 0 else None
            if read and (mapping := read.operands[index]):
                inners.add(mapping.inner)
        mappings += [
            DimMapping(dim, size // inner, inner) for inner in sorted(inners) if size % inner == 0 and size > inner
        ]
    return mappings


def find_twins(graph: Graph, is_over: Callable[[int], bool]) -> frozenset[int]:
    """The floats below the threshold that are converted to or from floats over it, and those computed with them.

    The bf16 scores of an attention and their f32 softmax are one thing to split: cut alone, the f32 middle, which is
    fused and never written, leaves all of the bf16 in memory, and the loop's copies of it besides.
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
    """What an elementwise op makes of a tensor, or what it makes the tensor of."""
    tensor = graph.tensors[value]
    found: list[int] = []
    for position in {tensor.producer, *(user for user, _ in tensor.users)} - {OUTSIDE}:
        node = graph.nodes[position]
        if Trait.POINTWISE in node.traits:
            found += [*node.operands, *node.results]
    return found
