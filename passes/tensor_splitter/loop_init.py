"""What a loop starts from, made to wait for the loop's input.

XLA:CPU runs what is ready first, and a constant is ready at once: the buffers of all loops of a program would be
filled at its beginning, and stay alive until their loop comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from .graph import OUTSIDE, Graph
from .plan import LoopPlan

# A smaller buffer is not worth the ops.
_BIG = 2**20
# XLA makes these where they are read, whenever that is.
_EARLY = Trait.GENERATES | Trait.REARRANGES


def find_depths(graph: Graph) -> list[int]:
    """For every op the most ops on a path to it that are more than a step of a fused kernel: dots, sums, loops."""
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
    """The tensor that the loop reads and that is ready last; None if all are there from the start.

    Where an op stands says little, for XLA runs what is ready; it decides between those that take as many steps.
    depths: what `find_depths` found.
    """
    inside = set(loop.stage.nodes)
    found: tuple[int, int, ir.Value] | None = None
    for position in loop.stage.nodes:
        node = graph.nodes[position]
        for number, value in zip(node.operands, node.op.operands, strict=True):
            tensor = graph.tensors[number]
            made = tensor.producer
            if made == OUTSIDE or made in inside or not prod(tensor.type.shape):
                continue
            op = defining_op(value)  # not always the graph's: a loop may have taken its place
            if op is None or traits_of(op.name) & _EARLY:
                continue
            if found is None or (depths[made], made) > found[:2]:
                found = depths[made], made, value
    return None if found is None else found[2]


def after_input(initial: ir.Value, after: ir.Value | None, size: int) -> ir.Value:
    """The same tensor, made when `after` is: zeros, or one number everywhere. size: its bytes."""
    op = defining_op(initial)
    if after is None or size < _BIG or op is None:
        return initial
    kind = build.tensor_of(initial)
    number = op.operands[0] if len(op.operands) else build.zeros(build.with_shape(kind, []))
    other = build.splat(number.type, 1)
    return build.broadcast(stablehlo.select(_never(after), other, number), kind.shape)


def _never(value: ir.Value) -> ir.Value:
    """False, but only known when `value` is: its first element is at once below and above zero."""
    rank = len(build.shape_of(value))
    first = stablehlo.slice(value, [0] * rank, [1] * rank, [1] * rank) if rank else value
    element = stablehlo.reshape(build.with_shape(build.tensor_of(value), []), first) if rank else first
    if isinstance(build.tensor_of(element).element_type, ir.ComplexType):
        element = stablehlo.real(element)
    kind = build.tensor_of(element).element_type
    if isinstance(kind, ir.IntegerType) and (kind.is_unsigned or kind.width == 1):
        element = build.convert(element, ir.F32Type.get())  # XLA knows that nothing of its own type is below zero
    zero = build.zeros(element.type)
    below, above = (stablehlo.ComparisonDirectionAttr.get(name) for name in ("LT", "GT"))
    return stablehlo.and_(stablehlo.compare(element, zero, below), stablehlo.compare(element, zero, above))
