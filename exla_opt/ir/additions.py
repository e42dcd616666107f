"""Sums of several terms: chains of additions of which nothing else reads a part."""

from __future__ import annotations

from jaxlib.mlir import ir

from .values import defining_op, has_discardable_attributes

ADD = "stablehlo.add"


def next_addition(op: ir.Operation) -> ir.Operation | None:
    """The addition of the same block that alone reads another one: both are of one sum."""
    uses = [use.owner.operation for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != ADD or uses[0].block != op.block:
        return None
    return None if any(map(has_discardable_attributes, (op, uses[0]))) else uses[0]


def terms_of_sum(root: ir.Operation) -> list[ir.Value]:
    """What the additions of a sum add up. root: the last of them."""
    terms, queue = [], list(root.operands)
    while queue:
        value = queue.pop()
        inner = defining_op(value, ADD)
        if inner is not None and next_addition(inner) is not None:
            queue += inner.operands
        else:
            terms.append(value)
    return terms
