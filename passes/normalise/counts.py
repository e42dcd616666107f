"""Components of an index that count: which of them may become a batching dimension, and which one does."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ops.affine import Affine
from exla_opt.ops.affine_reader import AffineReader, Lane
from exla_opt.ops.index_numbers import GATHER, IndexNumbers, indices_of, moved_of, numbers_of

# Rows that are left unread or unwritten may make so many times as many of those that are.
_MOST_GROWTH = 2
# What is put in its place may be so much smaller than the operand, and no larger.
_SMALL = 4


@dataclass(frozen=True, slots=True)
class Count:
    """A component that counts. column: its place in an index. dim: the operand's dimension, of `rows` rows.

    at: the dimension of the indices along which it counts, in digits of `sizes`, of which the one at `digit` counts:
    the row of position p is offset + stride * p.
    """

    column: int
    dim: int
    rows: int
    at: int
    sizes: tuple[int, ...]
    digit: int
    offset: int
    stride: int

    @property
    def first(self) -> int:
        """The lowest of the rows that are named."""
        return min(self.offset, self.last_named)

    @property
    def last_named(self) -> int:
        """The row of the last position."""
        return self.offset + self.stride * (self.sizes[self.digit] - 1)

    @property
    def is_complete(self) -> bool:
        """Whether every row is named."""
        return self.sizes[self.digit] == self.rows


def best_count(op: ir.Operation, reader: AffineReader) -> Count | None:
    """The component that becomes a batching dimension: one that names all rows, if any does, of most rows."""
    numbers = numbers_of(op)
    counts = [
        count
        for column in range(len(numbers.named))
        if (count := _count(op, numbers, column, reader)) is not None and is_worthwhile(op, count)
    ]
    return max(counts, key=lambda count: (count.is_complete, count.rows), default=None)


def may_be_changed(op: ir.Operation) -> bool:
    """Whether nothing is written at a gather or scatter that another would lack, and its shapes are known."""
    return not has_discardable_attributes(op) and all(
        ir.RankedTensorType(value.type).has_static_shape for value in (*op.operands, *op.results)
    )


def _count(op: ir.Operation, numbers: IndexNumbers, column: int, reader: AffineReader) -> Count | None:
    """The component where it counts inside of a dimension of which windows have one element; None else."""
    dim, rows = numbers.named[column], build.shape_of(op.operands[0])[numbers.named[column]]
    value = reader.of(indices_of(op), lane_of(op, column)) if dim in numbers.single else None
    if value is None or value.lowest < 0 or value.highest >= rows:
        return None
    return count_of(op, numbers, column, rows, value)


def lane_of(op: ir.Operation, column: int) -> Lane | None:
    """Where a component stands in the indices; None where it is the only one, and they are no longer than that."""
    vector = numbers_of(op).vector
    return None if vector == len(build.shape_of(indices_of(op))) else (vector, column)


def count_of(op: ir.Operation, numbers: IndexNumbers, column: int, rows: int, value: Affine) -> Count | None:
    """The component that has these integers, inside of a dimension of `rows` rows, if it may become a batch."""
    counting = [(at, digit) for at, digits in enumerate(value.dims) for digit, one in enumerate(digits) if one.stride]
    if len(counting) != 1 or counting[0][0] in numbers.at_index:
        return None
    [(at, digit)] = counting
    sizes = tuple(each.size for each in value.dims[at])
    stride = value.dims[at][digit].stride
    found = Count(column, numbers.named[column], rows, at, sizes, digit, value.offset, stride)
    return found if op.name == GATHER or _may_be_written(found, numbers, indices_of(op)) else None


def _may_be_written(count: Count, numbers: IndexNumbers, indices: ir.Value) -> bool:
    """Whether another component is left to a scatter, and can say with a -1 that nothing is written to a row.

    Of a window of several elements that begins outside, some lie inside; of one element none does.
    """
    if count.is_complete:
        return len(numbers.named) > 1
    is_unsigned = ir.IntegerType(build.tensor_of(indices).element_type).is_unsigned
    return not is_unsigned and any(dim in numbers.single for dim in numbers.named if dim != count.dim)


def is_worthwhile(op: ir.Operation, count: Count) -> bool:
    """Nothing is added, or little to what is small next to the operand."""
    if count.is_complete and count.stride == 1:
        return True
    moved = prod(build.shape_of(moved_of(op)[0])) * len(moved_of(op))
    grows = count.rows <= _MOST_GROWTH * count.sizes[count.digit]
    return grows and moved * _SMALL <= prod(build.shape_of(op.operands[0]))
