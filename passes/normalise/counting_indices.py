"""An index that counts becomes a batching dimension of its gather or scatter.

    gather(x, [iota, labels])       ->   gather(x, [labels]), rows of x and of the labels in step
    scatter(x, [iota, i], updates)  ->   scatter(x, [i], updates), likewise

`logits[arange(n), labels]` and its gradient are written so. Both may be cut along a batching dimension;
along one whose rows an index may name in any order, a gather is not cut at all.

What is legal: the component of the index is offset + stride * position along one dimension of the indices, inside of
the operand's dimension everywhere (so neither a gather's clamp nor the dropping of a scatter's updates comes into it),
of which windows have one element. The order of writes to one place stays: places in two rows are never the same.

Where positions are not rows (an offset, a stride, the rows backwards, one row for several positions), the indices and
what is gathered or written, which are small next to the operand, are put in the place of their rows. Rows that are left
get an index that is gathered for nothing, or that lies outside, where nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import boolean, integer
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.ops.affine_reader import AffineReader

_GATHER, _SCATTER = "stablehlo.gather", "stablehlo.scatter"
_SORTED = "indices_are_sorted"
# Rows that are left unread or unwritten may make so many times as many of those that are.
_MOST_GROWTH = 2
# What is put in its place may be so much smaller than the operand, and no larger.
_SMALL = 4


@dataclass(frozen=True, slots=True)
class Numbers:
    """The dimension numbers of a gather or a scatter, by one name for both.

    windows: the dimensions of the result, or of the updates, that windows have. single: those of the operand of which
    windows have one element and no dimension. batching, at_index: the batching dimensions of the operand and, for each,
    of the indices. named: the dimension of the operand that each component of an index names. vector: the dimension of
    the indices that the components lie along; the rank where there is one component and no such dimension.
    """

    windows: tuple[int, ...]
    single: tuple[int, ...]
    batching: tuple[int, ...]
    at_index: tuple[int, ...]
    named: tuple[int, ...]
    vector: int


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


def count_batches(module: ir.Module) -> bool:
    """Make the counting components of all indices batching dimensions; returns whether there was one.

    What was replaced stays, unused, for the caller to clean up.
    """
    reader = AffineReader()
    changed = False
    for op in inside_out(module, _GATHER, _SCATTER):
        while (count := _best(op, reader)) is not None:
            op = _rewritten(op, count)
            changed = True
    return changed


def _best(op: ir.Operation, reader: AffineReader) -> Count | None:
    """The component that becomes a batching dimension: one that names all rows, if any does, of most rows."""
    if has_discardable_attributes(op) or not _has_fixed_shapes(op):
        return None
    numbers = numbers_of(op)
    counts = [
        count
        for column in range(len(numbers.named))
        if (count := _count(op, numbers, column, reader)) is not None and _is_worthwhile(op, count)
    ]
    return max(counts, key=lambda count: (count.is_complete, count.rows), default=None)


def _has_fixed_shapes(op: ir.Operation) -> bool:
    return all(ir.RankedTensorType(value.type).has_static_shape for value in (*op.operands, *op.results))


def _count(op: ir.Operation, numbers: Numbers, column: int, reader: AffineReader) -> Count | None:
    """The component where it counts inside of a dimension of which windows have one element; None else."""
    dim, rows = numbers.named[column], build.shape_of(op.operands[0])[numbers.named[column]]
    indices = _indices_of(op)
    lane = None if numbers.vector == len(build.shape_of(indices)) else (numbers.vector, column)
    value = reader.of(indices, lane) if dim in numbers.single else None
    if value is None or value.lowest < 0 or value.highest >= rows:
        return None
    counting = [(at, digit) for at, digits in enumerate(value.dims) for digit, one in enumerate(digits) if one.stride]
    if len(counting) != 1 or counting[0][0] in numbers.at_index:
        return None
    [(at, digit)] = counting
    sizes = tuple(each.size for each in value.dims[at])
    found = Count(column, dim, rows, at, sizes, digit, value.offset, value.dims[at][digit].stride)
    may_be_left = op.name == _GATHER or _drops(indices, len(numbers.named))
    return found if found.is_complete or may_be_left else None


def _drops(indices: ir.Value, components: int) -> bool:
    """Whether an index that lies outside can be written: another component of it, of -1."""
    return components > 1 and not ir.IntegerType(build.tensor_of(indices).element_type).is_unsigned


def _is_worthwhile(op: ir.Operation, count: Count) -> bool:
    """Nothing is added, or little to what is small next to the operand."""
    if count.is_complete and len(count.sizes) == 1 and count.stride == 1:
        return True
    moved = prod(build.shape_of(_moved_of(op)[0])) * len(_moved_of(op))
    grows = count.rows <= _MOST_GROWTH * count.sizes[count.digit]
    return grows and moved * _SMALL <= prod(build.shape_of(op.operands[0]))


def _indices_of(op: ir.Operation) -> ir.Value:
    indices: ir.Value = op.operands[1 if op.name == _GATHER else len(op.results)]
    return indices


def _moved_of(op: ir.Operation) -> list[ir.Value]:
    """What is gathered, or the updates."""
    return list(op.results) if op.name == _GATHER else list(op.operands)[len(op.results) + 1 :]


def numbers_of(op: ir.Operation) -> Numbers:
    """The dimension numbers of a gather or a scatter."""
    if op.name == _GATHER:
        gather = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        return Numbers(
            tuple(gather.offset_dims),
            tuple(gather.collapsed_slice_dims),
            tuple(gather.operand_batching_dims),
            tuple(gather.start_indices_batching_dims),
            tuple(gather.start_index_map),
            gather.index_vector_dim,
        )
    scatter = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return Numbers(
        tuple(scatter.update_window_dims),
        tuple(scatter.inserted_window_dims),
        tuple(scatter.input_batching_dims),
        tuple(scatter.scatter_indices_batching_dims),
        tuple(scatter.scattered_dims_to_operand_dims),
        scatter.index_vector_dim,
    )


def _attribute(op: ir.Operation, numbers: Numbers) -> tuple[str, ir.Attribute]:
    if op.name == _GATHER:
        return "dimension_numbers", stablehlo.GatherDimensionNumbers.get(
            offset_dims=list(numbers.windows),
            collapsed_slice_dims=list(numbers.single),
            operand_batching_dims=list(numbers.batching),
            start_indices_batching_dims=list(numbers.at_index),
            start_index_map=list(numbers.named),
            index_vector_dim=numbers.vector,
        )
    return "scatter_dimension_numbers", stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=list(numbers.windows),
        inserted_window_dims=list(numbers.single),
        input_batching_dims=list(numbers.batching),
        scatter_indices_batching_dims=list(numbers.at_index),
        scattered_dims_to_operand_dims=list(numbers.named),
        index_vector_dim=numbers.vector,
    )


def batched(numbers: Numbers, count: Count) -> Numbers:
    """The numbers with the component as a batching dimension, and the dimension along which it counts in its digits."""
    more = len(count.sizes) - 1
    place = place_of(numbers, count.at)
    at_index = [at + more if at > count.at else at for at in numbers.at_index]
    pairs = sorted([*zip(numbers.batching, at_index, strict=True), (count.dim, count.at + count.digit)])
    return Numbers(
        windows=tuple(dim + more if dim > place else dim for dim in numbers.windows),
        single=tuple(dim for dim in numbers.single if dim != count.dim),
        batching=tuple(dim for dim, _ in pairs),
        at_index=tuple(at for _, at in pairs),
        named=tuple(dim for column, dim in enumerate(numbers.named) if column != count.column),
        vector=numbers.vector + more if numbers.vector > count.at else numbers.vector,
    )


def place_of(numbers: Numbers, at: int) -> int:
    """The dimension of the result, or of the updates, that is dimension `at` of the indices."""
    place, left = 0, at - (numbers.vector < at)
    while left or place in numbers.windows:
        left -= place not in numbers.windows
        place += 1
    return place


def _rewritten(op: ir.Operation, count: Count) -> ir.Operation:
    """Put the gather or scatter with the batching dimension in the place of `op`; returns it."""
    numbers = numbers_of(op)
    place = place_of(numbers, count.at)
    with ir.InsertionPoint(op), op.location:
        is_gather = op.name == _GATHER
        indices = _in_rows(_without(op, numbers, count), count, count.at, 0 if is_gather else -1)
        operands = [op.operands[0], indices]
        if not is_gather:
            updates = [_in_rows(value, count, place, 0) for value in _moved_of(op)]
            operands = [*list(op.operands)[: len(op.results)], indices, *updates]
        made = _with(op, operands, batched(numbers, count))
        results: list[ir.Value] = list(made.results)
        if is_gather:
            shape = build.shape_of(results[0])
            in_rows = [*shape[:place], *count.sizes, *shape[place + 1 :]]
            in_rows[place + count.digit] = count.rows
            results[0].set_type(build.with_shape(build.tensor_of(results[0]), in_rows))
            results = [_out_of_rows(results[0], count, place, shape)]
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    return made


def _with(op: ir.Operation, operands: Sequence[ir.Value], numbers: Numbers) -> ir.Operation:
    made = op.clone(ip=ir.InsertionPoint.current).operation
    for place, value in enumerate(operands):
        made.operands[place] = value
    name, attribute = _attribute(op, numbers)
    made.attributes[name] = attribute
    # Sorted they were with the row first; by what is left of an index they need not be.
    if boolean(op, _SORTED):
        made.attributes[_SORTED] = ir.BoolAttr.get(False)
    return made


def _without(op: ir.Operation, numbers: Numbers, count: Count) -> ir.Value:
    """The indices without the component, along the same dimension."""
    indices = _indices_of(op)
    columns = [
        _column(indices, numbers.vector, column) for column in range(len(numbers.named)) if column != count.column
    ]
    if not columns:
        kind, shape = build.tensor_of(indices), build.shape_of(indices)
        shape[numbers.vector : numbers.vector + 1] = [0]
        return stablehlo.iota(build.with_shape(kind, shape), numbers.vector)
    joined = columns[0]
    for column in columns[1:]:
        joined = build.join(joined, column, numbers.vector)
    return joined


def _column(indices: ir.Value, vector: int, column: int) -> ir.Value:
    """One component of every index, from where it was joined to the others."""
    joined = defining_op(indices, "stablehlo.concatenate")
    if joined is not None and integer(joined, "dimension") == vector:
        for operand in joined.operands:
            size = build.shape_of(operand)[vector]
            if column < size:
                return _column(operand, vector, column)
            column -= size
    shape = build.shape_of(indices)
    if shape[vector] == 1:
        return indices
    starts = [column if dim == vector else 0 for dim in range(len(shape))]
    limits = [column + 1 if dim == vector else size for dim, size in enumerate(shape)]
    return stablehlo.slice(indices, starts, limits, [1] * len(shape))


def _in_rows(value: ir.Value, count: Count, dim: int, filling: int) -> ir.Value:
    """What stands at the positions along `dim` in the order of the rows that they name, `filling` at those left."""
    kind, shape = build.tensor_of(value), build.shape_of(value)
    if len(count.sizes) > 1:
        shape[dim : dim + 1] = count.sizes
        value = stablehlo.reshape(build.with_shape(kind, shape), value)
    at = dim + count.digit
    if count.stride < 0:
        value = stablehlo.reverse(value, ir.DenseI64ArrayAttr.get([at]))
    if count.is_complete:
        return value
    low, high, between = ([0] * len(shape) for _ in range(3))
    low[at], between[at] = count.first, abs(count.stride) - 1
    high[at] = count.rows - 1 - max(count.offset, count.last_named)
    filler = build.splat(build.with_shape(kind, []), filling)
    return stablehlo.pad(value, filler, low, high, between)


def _out_of_rows(value: ir.Value, count: Count, dim: int, shape: Sequence[int]) -> ir.Value:
    """What stands in the rows along `dim` at the positions that name them, in the shape that it has there."""
    at = dim + count.digit
    if not count.is_complete:
        rows = build.shape_of(value)
        starts, strides = [0] * len(rows), [1] * len(rows)
        starts[at], strides[at] = count.first, abs(count.stride)
        rows[at] = max(count.offset, count.last_named) + 1
        value = stablehlo.slice(value, starts, rows, strides)
    if count.stride < 0:
        value = stablehlo.reverse(value, ir.DenseI64ArrayAttr.get([at]))
    if len(count.sizes) > 1:
        value = stablehlo.reshape(build.with_shape(build.tensor_of(value), shape), value)
    return value
