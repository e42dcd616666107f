"""Splits a component of an index that counts in several steps into one component for each of them.

    gather(x [r * n, k], [i * n + j, labels])   ->   gather(x as [r, n, k], [i, j, labels])

`x[jnp.arange(r * n).reshape(r, n), labels]` is written so, with one component that counts along two dimensions of the
indices, and so is `x.reshape(-1)[jnp.arange(r) * n + labels]`, whose labels are known to be one of 0, ..., n - 1.

Legal: the component is n * major + minor, with 0 <= minor < n everywhere, within the operand's dimension, of which
windows have one element and n is a divisor. Then quotient and remainder name the same element.

A window of one element that has a dimension of its own, as from vmap of a dynamic slice, first loses that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ops.affine import Affine, by_largest_step
from exla_opt.ops.affine_reader import AffineReader
from exla_opt.ops.index_numbers import GATHER, IndexNumbers, indices_of, moved_of, numbers_of

from .counts import Count, count_of, is_worthwhile, lane_of
from .index_columns import column_of, joined_columns, replace_results, with_operands


@dataclass(frozen=True, slots=True)
class Parts:
    """A component that is step * major + a number smaller than a step.

    major: the integers of the major part. count: that part, as a component that counts, in the component's position.
    after: the numbers of the op with both parts.
    """

    step: int
    major: Affine
    count: Count
    after: IndexNumbers


def parts_of(op: ir.Operation, reader: AffineReader) -> Parts | None:
    """A component in two parts, the major of which may become a batching dimension."""
    numbers = numbers_of(op)
    for column, dim in enumerate(numbers.named):
        rows = build.shape_of(op.operands[0])[dim]
        value = reader.bounds_of(indices_of(op), lane_of(op, column)) if dim in numbers.single else None
        split = by_largest_step(value) if value is not None and value.highest < rows else None
        if split is None or split[0] == 1 or rows % split[0]:
            continue
        after = _with_parts(numbers, column)
        count = count_of(op, after, column, rows // split[0], split[1])
        if count is not None and is_worthwhile(op, count):
            return Parts(*split, count, after)
    return None


def _with_parts(numbers: IndexNumbers, column: int) -> IndexNumbers:
    dim = numbers.named[column]

    def moved(dims: Sequence[int]) -> tuple[int, ...]:
        return tuple(one + (one > dim) for one in dims)

    named = moved(numbers.named)
    return replace(
        numbers,
        single=tuple(sorted([*moved(numbers.single), dim + 1])),
        batching=moved(numbers.batching),
        named=(*named[: column + 1], dim + 1, *named[column + 1 :]),
    )


def take_apart(op: ir.Operation, parts: Parts) -> ir.Operation:
    """Replace `op` by the gather or scatter with both parts; return it."""
    count = len(op.results)  # as many operands as results: a gather has one of each
    with ir.InsertionPoint(op), op.location:
        operands = list(op.operands)
        operands[:count] = [build.reshaped(value, _split_shape(value, parts)) for value in operands[:count]]
        operands[count] = _indices_in_parts(op, parts)
        made = with_operands(op, operands, parts.after)
        if op.name == GATHER:
            sizes = integers(op, "slice_sizes", [])
            sizes.insert(parts.count.dim, 1)
            made.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(sizes)
            replace_results(op, list(made.results))
            return made
        for result, value in zip(made.results, operands[:count], strict=True):
            result.set_type(value.type)
        replace_results(
            op,
            [build.reshaped(value, build.shape_of(old)) for value, old in zip(made.results, op.results, strict=True)],
        )
    return made


def _split_shape(value: ir.Value, parts: Parts) -> list[int]:
    shape = build.shape_of(value)
    return [*shape[: parts.count.dim], shape[parts.count.dim] // parts.step, parts.step, *shape[parts.count.dim + 1 :]]


def _indices_in_parts(op: ir.Operation, parts: Parts) -> ir.Value:
    numbers, indices = numbers_of(op), indices_of(op)
    shape = build.shape_of(indices)
    if numbers.vector == len(shape):
        indices = build.reshaped(indices, [*shape, 1])
    columns = [column_of(indices, numbers.vector, column) for column in range(len(numbers.named))]
    old = columns[parts.count.column]
    major = _written(parts.major, build.tensor_of(old))
    steps = stablehlo.multiply(major, build.splat(old.type, parts.step))
    columns[parts.count.column : parts.count.column + 1] = [major, stablehlo.subtract(old, steps)]
    return joined_columns(columns, numbers.vector)


def _written(value: Affine, kind: ir.RankedTensorType) -> ir.Value:
    """The integers, of which one digit counts up or down in steps of 1."""
    digits = [digit for dim in value.dims for digit in dim]
    at = next(place for place, digit in enumerate(digits) if digit.stride)
    made = stablehlo.iota(build.with_shape(kind, [digit.size for digit in digits]), at)
    if digits[at].stride < 0:
        made = stablehlo.reverse(made, ir.DenseI64ArrayAttr.get([at]))
    if value.lowest:
        made = stablehlo.add(made, build.splat(made.type, value.lowest))
    return build.reshaped(made, kind.shape)


def is_loose(op: ir.Operation, reader: AffineReader) -> bool:
    """Whether a component that counts names windows of one element with a dimension of their own."""
    return any(_counts(op, column, reader) for column in _loose(op))


def _counts(op: ir.Operation, column: int, reader: AffineReader) -> bool:
    value = reader.bounds_of(indices_of(op), lane_of(op, column))
    return value is not None and any(digit.stride for dim in value.dims for digit in dim)


def _loose(op: ir.Operation) -> list[int]:
    """The components that name such windows."""
    numbers, sizes = numbers_of(op), _window_sizes(op)
    return [column for column, dim in enumerate(numbers.named) if sizes[dim] == 1 and dim not in numbers.single]


def _window_sizes(op: ir.Operation) -> list[int]:
    """The window size along each dimension of the operand."""
    if op.name == GATHER:
        return integers(op, "slice_sizes", [])
    numbers, shape = numbers_of(op), build.shape_of(moved_of(op)[0])
    sizes = iter(numbers.windows)
    without = {*numbers.single, *numbers.batching}
    rank = len(build.shape_of(op.operands[0]))
    return [1 if dim in without else shape[next(sizes)] for dim in range(rank)]


def tighten(op: ir.Operation) -> ir.Operation:
    """Replace `op` by the gather or scatter without those window dimensions; return it."""
    numbers = numbers_of(op)
    loose = {numbers.named[column] for column in _loose(op)}
    without = {*numbers.single, *numbers.batching}
    with_dims = [dim for dim in range(len(build.shape_of(op.operands[0]))) if dim not in without]
    gone = [place for place, dim in zip(numbers.windows, with_dims, strict=True) if dim in loose]
    kept = [place for place in numbers.windows if place not in gone]
    windows = tuple(place - sum(one < place for one in gone) for place in kept)
    after = replace(numbers, windows=windows, single=tuple(sorted({*numbers.single, *loose})))
    with ir.InsertionPoint(op), op.location:
        if op.name == GATHER:
            made = with_operands(op, list(op.operands), after)
            shape = build.shape_of(op.results[0])
            made.results[0].set_type(build.with_shape(build.tensor_of(op.results[0]), _left(shape, gone)))
            replace_results(op, [build.reshaped(made.results[0], shape)])
            return made
        count = len(op.results)
        updates = [build.reshaped(value, _left(build.shape_of(value), gone)) for value in moved_of(op)]
        made = with_operands(op, [*list(op.operands)[: count + 1], *updates], after)
        replace_results(op, list(made.results))
    return made


def _left(shape: Sequence[int], gone: Sequence[int]) -> list[int]:
    return [size for place, size in enumerate(shape) if place not in gone]
