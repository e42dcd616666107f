"""The libraries of linear algebra on a GPU, which read and write column-major matrices."""

from __future__ import annotations

from dataclasses import replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of

from ..block import Operation
from ..builder import Builder

# The maximum number of ops before a call that are searched.
_LONGEST_WAY = 50


def call_library(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """Append a call, and before it a copy of each operand in another order.

    cuSOLVER's calls state the order of theirs; cuBLAS's triangular solve needs both column-major.
    """
    copied = made.copied if made.name == "custom_call" else tuple(range(len(made.operands)))
    operands = list(made.operands)
    for side, value in enumerate(operands):
        if side in copied and (is_product(op.operands[side]) or is_from_outside(op.operands[side], op)):
            continue  # written column-major from the start
        if (side in copied) != (value in builder.by_columns):
            operands[side] = builder.fresh(op.operands[side], builder.block.shapes[value], value)
            builder.add_plain("transpose", (value,), (operands[side],))
    builder.add(replace(made, operands=tuple(operands), copied=()))
    if copied:
        builder.by_columns.update(made.results)


def is_product(value: ir.Value) -> bool:
    """Whether a tensor is a matrix product, perhaps plus an addend, with one reader."""
    inner = defining_op(value, "stablehlo.add")
    sources = [value] if inner is None else [value, *inner.operands]
    if any(len(list(each.uses)) > 1 for each in sources[:1]):
        return False
    return any(defining_op(each, "stablehlo.dot_general") is not None and len(list(each.uses)) == 1 for each in sources)


def is_from_outside(value: ir.Value, op: ir.Operation) -> bool:
    """Whether a tensor is an elementwise function of one that a loop around an op captures."""
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
    """Whether an op leaves matrices in the order that a library wrote."""
    return Trait.POINTWISE in made.traits and not builder.by_columns.isdisjoint(made.operands)
