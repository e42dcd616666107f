"""The libraries of linear algebra on a GPU, which read and write matrices column by column."""

from __future__ import annotations

from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..block import Operation
from ..builder import Builder

# So many ops before a call are looked at.
_LONGEST_WAY = 50


def call_library(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A call, and before it a copy of each operand that is in another order.

    cuSOLVER's calls say in which order they want theirs; cuBLAS's triangular solve wants both by columns.
    """
    copied = made.copied if made.name == "custom_call" else tuple(range(len(made.operands)))
    operands = list(made.operands)
    for side, value in enumerate(operands):
        if side in copied and (is_product(op.operands[side]) or is_from_outside(op.operands[side], op)):
            continue  # written by columns from the start
        if (side in copied) != (value in builder.by_columns):
            operands[side] = builder.fresh(op.operands[side], builder.block.shapes[value], value)
            builder.add_plain("transpose", (value,), (operands[side],))
    builder.add(replace(made, operands=tuple(operands), copied=()))
    if copied:
        builder.by_columns.update(made.results)


def is_product(value: ir.Value) -> bool:
    """Whether a product of matrices, to which something may be added, makes a tensor for one reader."""
    inner = defining_op(value, "stablehlo.add")
    sources = [value] if inner is None else [value, *inner.operands]
    if any(len(list(each.uses)) > 1 for each in sources[:1]):
        return False
    return any(defining_op(each, "stablehlo.dot_general") is not None and len(list(each.uses)) == 1 for each in sources)


def is_from_outside(value: ir.Value, op: ir.Operation) -> bool:
    """Whether a tensor is computed, element by element, from one that a loop around an op captures."""
    inside = op.operation.block
    seen, stack = set[ir.Value](), [value]
    while stack:
        each = stack.pop()
        if len(seen) > _LONGEST_WAY:
            return False
        source = defining_op(each)
        if isinstance(inside.owner.opview, func.FuncOp) or each in seen:
            continue
        seen.add(each)
        if source is None or source.block != inside:
            if ir.RankedTensorType(each.type).shape == ir.RankedTensorType(value.type).shape and not (
                source is None and each.owner == inside
            ):
                return True
        elif Trait.POINTWISE in traits_of(source.name):
            stack.extend(source.operands)
    return False


def keeps_columns(builder: Builder, made: Operation) -> bool:
    """Whether an op leaves matrices in the order in which a library wrote them."""
    return Trait.POINTWISE in made.traits and not builder.by_columns.isdisjoint(made.operands)
