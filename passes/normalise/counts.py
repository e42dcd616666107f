"""Iota components of an index: which of them may become a batching dimension, and which one does."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ops.affine import Affine
from exla_opt.ops.affine_reader import AffineReader, Lane
from exla_opt.ops.index_numbers import GATHER, IndexNumbers, indices_of, moved_of, numbers_of

# The factor by which unnamed rows may extend the named ones.
_MOST_GROWTH = 2
# The largest size of the reordered tensors, relative to the operand.
_SMALL = 4


@dataclass(frozen=True, slots=True)
class Count:
    """A component that counts. column: its position in an index. dim: the operand's dimension, of `rows` rows.

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
        """The lowest named row."""
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
    """The component that becomes a batching dimension: one that names all rows, if there is one, of the most rows."""
    numbers = numbers_of(op)
    counts = [
        count
        for column in range(len(numbers.named))
        if (count := _count(op, numbers, column, reader)) is not None and is_worthwhile(op, count)
    ]
    return max(counts, key=lambda count: (count.is_complete, count.rows), default=None)


def may_be_changed(op: ir.Operation) -> bool:
    """Whether a gather or scatter has no attributes that another would lack, and its shapes are known."""
    return not has_discardable_attributes(op) and all(
        ir.RankedTensorType(value.type).has_static_shape for value in (*op.operands, *op.results)
    )


def _count(op: ir.Operation, numbers: IndexNumbers, column: int, reader: AffineReader) -> Count | None:
    """The component if it counts within a dimension of which windows have one element; else None."""
    dim, rows = numbers.named[column], build.shape_of(op.operands[0])[numbers.named[column]]
    value = reader.of(indices_of(op), lane_of(op, column)) if dim in numbers.single else None
    if value is None or value.lowest < 0 or value.highest >= rows:
        return None
    return count_of(op, numbers, column, rows, value)


def lane_of(op: ir.Operation, column: int) -> Lane | None:
    """The position of a component in the indices; None if it is the only one, and they have no dimension for it."""
    vector = numbers_of(op).vector
    return None if vector == len(build.shape_of(indices_of(op))) else (vector, column)


def count_of(op: ir.Operation, numbers: IndexNumbers, column: int, rows: int, value: Affine) -> Count | None:
    """The component with these integers, within a dimension of `rows` rows, if it may become a batch."""
    counting = [(at, digit) for at, digits in enumerate(value.dims) for digit, one in enumerate(digits) if one.stride]
    if len(counting) != 1 or counting[0][0] in numbers.at_index:
        return None
    [(at, digit)] = counting
    sizes = tuple(each.size for each in value.dims[at])
    stride = value.dims[at][digit].stride
    found = Count(column, numbers.named[column], rows, at, sizes, digit, value.offset, stride)
    return found if op.name == GATHER or _may_be_written(found, numbers, indices_of(op)) else None


def _may_be_written(count: Count, numbers: IndexNumbers, indices: ir.Value) -> bool:
    """Whether a scatter has another component, which can be -1 for rows to which nothing is written.

    A window of several elements that begins out of bounds may be partly inside; one of a single element is not.
    """
    if count.is_complete:
        return len(numbers.named) > 1
    is_unsigned = ir.IntegerType(build.tensor_of(indices).element_type).is_unsigned
    return not is_unsigned and any(dim in numbers.single for dim in numbers.named if dim != count.dim)


def is_worthwhile(op: ir.Operation, count: Count) -> bool:
    """Whether nothing is added, or little to tensors that are small relative to the operand."""
    if count.is_complete and count.stride == 1:
        return True
    moved = prod(build.shape_of(moved_of(op)[0])) * len(moved_of(op))
    grows = count.rows <= _MOST_GROWTH * count.sizes[count.digit]
    return grows and moved * _SMALL <= prod(build.shape_of(op.operands[0]))
