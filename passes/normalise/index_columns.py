"""Gathers and scatters with other indices: single components, and the op with other operands."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import boolean, integer
from exla_opt.ir.values import defining_op
from exla_opt.ops.index_numbers import IndexNumbers, attribute_of

_SORTED = "indices_are_sorted"


def replace_results(op: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Replace the uses of an op's results by these values."""
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)


def with_operands(op: ir.Operation, operands: Sequence[ir.Value], numbers: IndexNumbers) -> ir.Operation:
    """The op on other operands, with other numbers, at the insertion point."""
    made = op.clone(ip=ir.InsertionPoint.current).operation
    for place, value in enumerate(operands):
        made.operands[place] = value
    name, attribute = attribute_of(op, numbers)
    made.attributes[name] = attribute
    # They were sorted with the row first; without it they need not be.
    if boolean(op, _SORTED):
        made.attributes[_SORTED] = ir.BoolAttr.get(False)
    return made


def joined_columns(columns: Sequence[ir.Value], vector: int) -> ir.Value:
    """Indices with these components, each of which has size 1 along the dimension `vector`."""
    joined = columns[0]
    for column in columns[1:]:
        joined = build.join(joined, column, vector)
    return joined


def column_of(indices: ir.Value, vector: int, column: int) -> ir.Value:
    """One component of every index, from before it was concatenated."""
    joined = defining_op(indices, "stablehlo.concatenate")
    if joined is not None and integer(joined, "dimension") == vector:
        for operand in joined.operands:
            size = build.shape_of(operand)[vector]
            if column < size:
                return column_of(operand, vector, column)
            column -= size
    shape = build.shape_of(indices)
    if shape[vector] == 1:
        return indices
    starts = [column if dim == vector else 0 for dim in range(len(shape))]
    limits = [column + 1 if dim == vector else size for dim, size in enumerate(shape)]
    return stablehlo.slice(indices, starts, limits, [1] * len(shape))
