"""The big tensors of a block that need no search for plans: those never in memory, and those that must stay."""

from __future__ import annotations

from collections.abc import Container
from math import prod

from exla_opt.ops.traits import Trait
from exla_opt.remarks import Reason

from ..graph import TILE_MARK, Graph, becomes_result, updates_carry
from ..regions.loops import Refusal, refuse_returned

# The code of a refusal because there is nothing to split.
IS_FUSED = "EX101"


def is_start(graph: Graph, value: int) -> bool:
    """Whether a tensor is never in memory: a constant, or a number that a loop starts from."""
    tensor = graph.tensors[value]
    node = graph.nodes[tensor.producer]
    if Trait.FREE not in node.traits or Trait.MOVES in node.traits and not node.operands:
        return False
    if not node.operands:
        return True
    loops = Trait.CONTROL_FLOW | Trait.IN_PLACE
    one_number = not graph.tensors[node.operands[0]].type.shape
    return one_number and all(loops in graph.nodes[user].traits for user, _ in tensor.users)


def refuse_early(graph: Graph, value: int, written: Container[int]) -> Refusal | None:
    """Why a tensor need not or cannot be split, if so. written: the tensors of the block that are in memory."""
    tensor = graph.tensors[value]
    node = graph.nodes[tensor.producer]
    if TILE_MARK in node.op.attributes:
        return Refusal(
            Reason("EX104", "it is needed complete, and the loop writes it slice by slice"), tensor.users[0][0]
        )
    if value not in written:
        return Refusal(Reason(IS_FUSED, "XLA fuses it into its readers: it is never in memory"), tensor.producer)
    if prod(tensor.type.shape) == 0:
        return Refusal(Reason("EX105", "it is empty"), tensor.producer)
    if updates_carry(graph, node):
        return Refusal(Reason("EX302", f"{node.name} updates a loop carry"), tensor.producer)
    if becomes_result(graph, value):
        return refuse_returned(graph)  # whatever its region is, it must exist at the end
    return None
