"""Reads rows of tensors at positions known only at run time: their gathers, and the numbers of rows."""

from __future__ import annotations

from itertools import groupby
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import boolean, integer, integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op

from .factor import DimMapping
from .index_numbers import GATHER, numbers_of

# Rows of a tensor: indices of the dimension of a mapping, which fills it.
Rows = tuple[ir.Value, DimMapping]


def rows_read(op: ir.Operation) -> Rows | None:
    """The rows that a gather reads from its operand, if it reads them whole and puts them in their place in its result.

    The result has its own number of them, possibly in several dimensions: `number_of_rows`.
    """
    if op.name != GATHER:
        return None
    numbers, sizes = numbers_of(op), integers(op, "slice_sizes", [])
    shape, result = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    if len(numbers.named) != 1 or numbers.batching:
        return None
    [dim] = numbers.named
    if sizes != [*shape[:dim], 1, *shape[dim + 1 :]]:
        return None
    windows = [other for other in range(len(shape)) if other not in numbers.single]
    read = dict(zip(numbers.windows, windows, strict=True))
    order = [place for place, _ in groupby(read.get(place, dim) for place in range(len(result)))]
    return (op.operands[0], DimMapping(dim, shape[dim])) if order == list(range(len(shape))) else None


def number_of_rows(op: ir.Operation) -> int:
    """How many rows such a gather reads."""
    return prod(build.shape_of(op.operands[1]))


def is_counted(rows: Rows) -> bool:
    """Whether all elements of a row are computed from its number: those of an iota along the rows."""
    value, mapping = rows
    op = defining_op(value)
    if op is None or op.name != "stablehlo.iota" or integer(op, "iota_dimension") != mapping.dim:
        return False
    return mapping.inner == 1 or isinstance(element_type(value), ir.IntegerType)


class RowReader:
    """Rows of tensors at the positions that a gather reads, at the current insertion point.

    made: those that are computed; all others are gathered.
    """

    def __init__(self, op: ir.Operation):
        self.number = number_of_rows(op)
        self.indices = build.reshaped(op.operands[1], [self.number, 1])
        self.is_sorted = boolean(op, "indices_are_sorted")
        self.made: dict[Rows, ir.Value] = {}

    def rows(self, rows: Rows) -> ir.Value:
        """Rows of a tensor."""
        if rows not in self.made:
            self.made[rows] = self.counted(rows) if is_counted(rows) else self.read(rows)
        return self.made[rows]

    def read(self, rows: Rows) -> ir.Value:
        """Gather rows; if a row is several elements of its dimension, they become a dimension of their own."""
        value, mapping = rows
        before, [_, *after] = (shape := build.shape_of(value))[: mapping.dim], shape[mapping.dim :]
        own = [mapping.inner] if mapping.inner > 1 else []
        made = self.gathered(build.reshaped(value, [*before, mapping.length, *own, *after]), mapping.dim)
        return build.reshaped(made, [*before, self.number * mapping.inner, *after])

    def gathered(self, value: ir.Value, dim: int) -> ir.Value:
        """Indices of a dimension of a tensor."""
        sizes = build.shape_of(value)
        sizes[dim] = 1
        numbers = stablehlo.GatherDimensionNumbers.get(
            offset_dims=[place for place in range(len(sizes)) if place != dim],
            collapsed_slice_dims=[dim],
            operand_batching_dims=[],
            start_indices_batching_dims=[],
            start_index_map=[dim],
            index_vector_dim=1,
        )
        lengths = ir.DenseI64ArrayAttr.get(sizes)
        made: ir.Value = stablehlo.gather(value, self.indices, numbers, lengths, indices_are_sorted=self.is_sorted)
        return made

    def counted(self, rows: Rows) -> ir.Value:
        """Rows of an iota along the rows."""
        value, mapping = rows
        kind = build.tensor_of(value)
        numbers = self.gathered(stablehlo.iota(build.with_shape(kind, [mapping.length]), 0), 0)
        if mapping.inner > 1:
            both = build.with_shape(kind, [self.number, mapping.inner])
            first = stablehlo.multiply(numbers, build.splat(numbers.type, mapping.inner))
            first = stablehlo.broadcast_in_dim(both, first, ir.DenseI64ArrayAttr.get([0]))
            numbers = build.reshaped(stablehlo.add(first, stablehlo.iota(both, 1)), [self.number * mapping.inner])
        shape = list(kind.shape)
        shape[mapping.dim] = self.number * mapping.inner
        made: ir.Value = stablehlo.broadcast_in_dim(
            build.with_shape(kind, shape), numbers, ir.DenseI64ArrayAttr.get([mapping.dim])
        )
        return made
