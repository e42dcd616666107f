"""Finds the input that a loop waits for the longest: its outputs need not exist before."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..graph import OUTSIDE, Graph
from .loop_plan import LoopPlan

# XLA recomputes these where they are read.
_EARLY = Trait.GENERATES | Trait.REARRANGES


def find_depths(graph: Graph) -> list[int]:
    """For every op, the most unfused ops on a path to it: dots, sums, loops."""
    depths: list[int] = []
    for node in graph.nodes:
        producers = (graph.tensors[value].producer for value in (*node.operands, *node.captures))
        before = max((depths[made] for made in producers if made != OUTSIDE), default=0)
        depths.append(before + (not _is_fused(node.traits)))
    return depths


def _is_fused(traits: Trait) -> bool:
    """Whether an op is a step of a fused kernel."""
    if traits & (_EARLY | Trait.POINTWISE):
        return True
    return Trait.MOVES in traits and not traits & (Trait.IN_PLACE | Trait.EXPENSIVE)


def last_input(graph: Graph, loop: LoopPlan, depths: Sequence[int]) -> ir.Value | None:
    """The input of the loop that is ready last; None if all exist from the start.

    The position of an op says little, as XLA runs ready ops; it only breaks ties of equal depth. depths: from
    `find_depths`.
    """
    inside = set(loop.stage.nodes)
    found: tuple[int, int, ir.Value] | None = None
    for position in loop.stage.nodes:
        node = graph.nodes[position]
        for number, value in zip(node.operands, node.values(), strict=True):
            tensor = graph.tensors[number]
            made = tensor.producer
            if made == OUTSIDE or made in inside or loop.stage.is_own(number) or not prod(tensor.type.shape):
                continue
            op = defining_op(value)  # not always the graph's: a loop may have replaced it
            if op is None or traits_of(op.name) & _EARLY:
                continue
            if found is None or (depths[made], made) > found[:2]:
                found = depths[made], made, value
    return None if found is None else found[2]
