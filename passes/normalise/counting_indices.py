"""Turns iota components of an index into batching dimensions of its gather or scatter.

    gather(x, [iota, labels])       ->   gather(x, [labels]), rows of x and of the labels in step
    scatter(x, [iota, i], updates)  ->   scatter(x, [i], updates), likewise

`logits[arange(n), labels]` and its gradient are written so. Both may be cut along a batching dimension; along one whose
rows are indexed in any order, a gather is not cut at all.

Legal: the component of the index is offset + stride * position along one dimension of the indices, and everywhere
within the operand's dimension (so that a gather does not clamp and a scatter drops no updates), of which windows have
one element. The order of writes to one position stays: positions in two rows always differ.

If positions are not rows (an offset, a stride, the rows backwards, one row for several positions), the indices and the
gathered or written tensors, which are small relative to the operand, are reordered to the rows. Unnamed rows get an
index whose result is not used, or one that is out of bounds, where nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.walk import inside_out
from exla_opt.ops.affine_reader import AffineReader
from exla_opt.ops.index_numbers import (
    GATHER,
    SCATTER,
    IndexNumbers,
    indices_of,
    moved_of,
    numbers_of,
    place_of,
)

from .counts import Count, best_count, may_be_changed
from .index_columns import column_of, joined_columns, replace_results, with_operands
from .index_parts import is_loose, parts_of, take_apart, tighten


def count_batches(module: ir.Module) -> bool:
    """Turn the iota components of all indices into batching dimensions; return whether there was one.

    Replaced ops stay, unused, for the caller to clean up.
    """
    reader = AffineReader()
    changed = False
    for op in inside_out(module, GATHER, SCATTER):
        left = op if may_be_changed(op) else None
        while left is not None:
            if is_loose(left, reader):
                left = tighten(left)
            elif (count := best_count(left, reader)) is not None:
                left = _rewritten(left, count)
            elif (parts := parts_of(left, reader)) is not None:
                left = _rewritten(take_apart(left, parts), parts.count)
            else:
                break
            changed = True
    return changed


def _batched(numbers: IndexNumbers, count: Count) -> IndexNumbers:
    """The numbers with the component as a batching dimension, and the dimension along which it counts in its digits."""
    more = len(count.sizes) - 1
    place = place_of(numbers, count.at)
    at_index = [at + more if at > count.at else at for at in numbers.at_index]
    pairs = sorted([*zip(numbers.batching, at_index, strict=True), (count.dim, count.at + count.digit)])
    return IndexNumbers(
        windows=tuple(dim + more if dim > place else dim for dim in numbers.windows),
        single=tuple(dim for dim in numbers.single if dim != count.dim),
        batching=tuple(dim for dim, _ in pairs),
        at_index=tuple(at for _, at in pairs),
        named=tuple(dim for column, dim in enumerate(numbers.named) if column != count.column),
        vector=numbers.vector + more if numbers.vector > count.at else numbers.vector,
    )


def _rewritten(op: ir.Operation, count: Count) -> ir.Operation | None:
    """Replace `op` by the gather or scatter with the batching dimension.

    Returns it; None if nothing is left to index, and no gather remains.
    """
    numbers = numbers_of(op)
    after = _batched(numbers, count)
    place = place_of(numbers, count.at)
    with ir.InsertionPoint(op), op.location:
        if op.name != GATHER:
            indices = _in_rows(_without(indices_of(op), numbers, count.column), count, count.at, -1)
            updates = [_in_rows(value, count, place, 0) for value in moved_of(op)]
            made = with_operands(op, [*list(op.operands)[: len(op.results)], indices, *updates], after)
            replace_results(op, list(made.results))
            return made
        kind, shape = build.tensor_of(op.results[0]), build.shape_of(op.results[0])
        in_rows = [*shape[:place], *count.sizes, *shape[place + 1 :]]
        in_rows[place + count.digit] = count.rows
        if not after.named:
            read = _read_in_order(op, after, in_rows)
            replace_results(op, [_out_of_rows(read, count, place, shape)])
            return None
        indices = _in_rows(_without(indices_of(op), numbers, count.column), count, count.at, 0)
        made = with_operands(op, [op.operands[0], indices], after)
        made.results[0].set_type(build.with_shape(kind, in_rows))
        replace_results(op, [_out_of_rows(made.results[0], count, place, shape)])
    return made


def _read_in_order(op: ir.Operation, numbers: IndexNumbers, shape: Sequence[int]) -> ir.Value:
    """The result of a gather whose windows all begin at the first element, and whose rows are all batches."""
    operand = op.operands[0]
    before, sizes = build.shape_of(operand), integers(op, "slice_sizes", [])
    read = [before[dim] if dim in numbers.batching else size for dim, size in enumerate(sizes)]
    value: ir.Value = stablehlo.slice(operand, [0] * len(read), read, [1] * len(read))
    kept = [dim for dim in range(len(read)) if dim not in numbers.single]
    value = stablehlo.reshape(build.with_shape(build.tensor_of(operand), [read[dim] for dim in kept]), value)
    windows = iter(numbers.windows)
    rows = {dim: place_of(numbers, at) for dim, at in zip(numbers.batching, numbers.at_index, strict=True)}
    places = [rows[dim] if dim in rows else next(windows) for dim in kept]
    order = sorted(range(len(places)), key=places.__getitem__)
    value = stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(order))
    kind = build.with_shape(build.tensor_of(operand), shape)
    return stablehlo.broadcast_in_dim(kind, value, ir.DenseI64ArrayAttr.get(sorted(places)))


def _without(indices: ir.Value, numbers: IndexNumbers, left_out: int) -> ir.Value:
    """The indices without one component; others remain, along the same dimension."""
    kept = [column for column in range(len(numbers.named)) if column != left_out]
    return joined_columns([column_of(indices, numbers.vector, column) for column in kept], numbers.vector)


def _in_rows(value: ir.Value, count: Count, dim: int, filling: int) -> ir.Value:
    """The elements at the positions along `dim`, reordered to the rows that they name, `filling` at unnamed rows."""
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
    """The elements of the rows along `dim` at the positions that name them, in their original shape."""
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
