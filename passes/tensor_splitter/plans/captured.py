"""Tensors that the loops of a selected plan read complete: whether a plan of their own would only replace that one.

A loop over the batch reads in every trip all of the bias that a layer has for pairs of tokens. The bias is big, so it
is split too: but over its heads, with one layer's attention, instead of all layers. In the loop, once it is built, the
bias is computed slice by slice.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxlib.mlir import ir

from exla_opt.ops.traits import Trait

from ..graph import OUTSIDE, Graph
from .plan import Plan

# The maximum number of tensors between one and those that it is made of, or the loops that read what is made of it.
_MOST_STEPS = 8
_ELEMENTWISE = Trait.POINTWISE | Trait.MOVES


def is_rival(graph: Graph, plan: Plan, selected: Iterable[Plan], value: int, threshold: int) -> bool:
    """Whether a plan for a tensor runs ops of a selected plan, whose loops alone read the tensor, complete.

    What is to be done is seen once those are built. Not of a tensor that is computed from others over the threshold:
    slices of it alone let those vanish as well.
    """
    rivals = [each for each in selected if _share_ops(plan, each)]
    if not rivals or not _is_made_of_given(graph, value, threshold):
        return False
    return any(_is_captured(graph, each, value) for each in rivals)


def _is_made_of_given(graph: Graph, value: int, threshold: int) -> bool:
    """Whether a tensor is moved or computed, element by element, from small tensors and arguments of the program.

    What takes the tensor from an argument, such as a slice, takes no other tensor over the threshold from one.
    """
    seen, queue = {value}, [value]
    while queue:
        made = queue.pop()
        node = graph.nodes[graph.tensors[made].producer]
        if not node.traits & (_ELEMENTWISE | Trait.GENERATES) or len(seen) > _MOST_STEPS:
            return False
        big = [each for each in node.operands if graph.tensors[each].type.bytes > threshold and each not in seen]
        given = [each for each in big if graph.tensors[each].producer == OUTSIDE]
        if not all(_is_argument(graph.tensors[each].value) for each in given):
            return False
        if given and Trait.CUTS in node.traits and made != value:
            return False
        seen.update(big)
        queue += [each for each in big if each not in given]
    return True


def _is_argument(value: ir.Value) -> bool:
    """Whether a tensor is an argument of a function, and of no loop."""
    return isinstance(value.owner, ir.Block) and value.owner.owner.operation.name == "func.func"


def _share_ops(plan: Plan, other: Plan) -> bool:
    """Whether the loops of two plans run the same op, not counting those that they only repeat."""
    return not (plan.tiled.keys() - plan.copies).isdisjoint(other.tiled.keys() - other.copies)


def _is_captured(graph: Graph, plan: Plan, value: int) -> bool:
    """Whether all that reads a tensor, or what is moved or computed from it element by element, are loops of a plan.

    They read all of it in each trip.
    """
    seen, queue = {value}, [value]
    while queue:
        users = graph.tensors[queue.pop()].users
        for user, index in users:
            node, tiled = graph.nodes[user], plan.tiled.get(user)
            if tiled is not None and (index < 0 or tiled.operands[index] is not None):
                return False
            if tiled is None and (not node.traits & _ELEMENTWISE or len(seen) > _MOST_STEPS):
                return False
            if user in plan.copies and not _is_read_in(graph, plan, user):
                return False
            more = [] if tiled is not None else [each for each in node.results if each not in seen]
            seen.update(more)
            queue += more
        if not users:
            return False
    return True


def _is_read_in(graph: Graph, plan: Plan, position: int) -> bool:
    """Whether all readers of an op are in the loops of a plan, so that nothing is left of it outside."""
    users = (user for value in graph.nodes[position].results for user, _ in graph.tensors[value].users)
    return all(user in plan.tiled for user in users)
