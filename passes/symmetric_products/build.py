"""Writes the loop over the tiles of half of a symmetric matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.loops import after_input, keep_separate_kernels
from exla_opt.ir.rewrite import clone_on
from exla_opt.ir.types import Types
from exla_opt.memory.loop_kernels import needs_separate_kernels
from exla_opt.memory.machine import Machine
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.passes.algebra.blocks import times
from exla_opt.passes.algebra.nodes import Placed

from .candidate import Candidate
from .cover import Cover
from .parts import COLUMNS, ROWS, Clone, Count, Part, Slice, Splat, Whole

# For the rows and the columns of a tile, their start and their number.
Spans = Mapping[int, tuple[ir.Value, int]]


def write(found: Candidate, machine: Machine) -> None:
    """Put the loop before the last reader of the matrix, and replace the results of all readers.

    The block is out of order afterwards: users of another reader may be before the loop.
    """
    last = found.readers[-1]
    with last.location, ir.InsertionPoint(last):
        columns = [_columns(op, found.matrix) for op in found.readers]
        loop = _Loop(found, [_halved(column, found.cover) for group in columns for column in group])
        products = iter(loop.write(machine))
        for op, group in zip(found.readers, columns, strict=True):
            op.results[0].replace_all_uses_with(_result(op, found.matrix, [next(products) for _ in group]))


def _columns(op: ir.Operation, matrix: ir.Value) -> list[ir.Value]:
    """The other operand of a reader's product, column by column."""
    size = build.shape_of(matrix)[0]
    kind = build.with_shape(build.tensor_of(matrix), [size])
    if op.name == "stablehlo.reduce":
        return [build.splat(kind, 1)]
    side = 1 if op.operands[0] == matrix else 0
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    [summed] = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)[side]
    factor = op.operands[side]
    shape = build.shape_of(factor)
    if len(shape) == 1:
        return [factor]
    order = [summed, *(dim for dim in range(len(shape)) if dim != summed)]
    if order != sorted(order):
        factor = stablehlo.transpose(factor, ir.DenseI64ArrayAttr.get(order))
    count = prod(shape) // size
    flat = stablehlo.reshape(build.with_shape(kind, [size, count]), factor)
    return [
        stablehlo.reshape(kind, stablehlo.slice(flat, [0, column], [size, column + 1], [1, 1]))
        for column in range(count)
    ]


def _result(op: ir.Operation, matrix: ir.Value, products: Sequence[ir.Value]) -> ir.Value:
    """The result of a reader from the products with its columns."""
    kind = build.tensor_of(op.results[0])
    if op.name == "stablehlo.reduce":
        return products[0] if len(kind.shape) else build.sum_along(products[0], [0])
    if len(kind.shape) == 1:
        return products[0]
    size = build.shape_of(matrix)[0]
    dim = 1 if op.operands[0] == matrix else 0
    shape = [size, 1] if dim else [1, size]
    parts = [stablehlo.reshape(build.with_shape(kind, shape), product) for product in products]
    joined = _joined(parts, dim)
    return joined if joined.type == kind else stablehlo.reshape(kind, joined)


def _joined(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    if len(parts) == 1:
        return parts[0]
    shape = build.shape_of(parts[0])
    shape[dim] = sum(build.shape_of(part)[dim] for part in parts)
    kind = build.with_shape(build.tensor_of(parts[0]), shape)
    return stablehlo.ConcatenateOp(list(parts), dim, results=[kind]).result


def _cut(value: ir.Value, dim: int, start: int, stop: int) -> ir.Value:
    shape = build.shape_of(value)
    if (start, stop) == (0, shape[dim]):
        return value
    starts = [start if place == dim else 0 for place in range(len(shape))]
    stops = [stop if place == dim else size for place, size in enumerate(shape)]
    return stablehlo.slice(value, starts, stops, [1] * len(shape))


def _around(value: ir.Value, dim: int, cover: Cover) -> ir.Value:
    """A tensor extended along the ring, as far as the last window reaches."""
    parts = [value]
    if cover.twice:
        parts.append(_cut(value, dim, cover.size - cover.twice, cover.size))
    parts.append(_cut(value, dim, 0, cover.beyond))
    return _joined(parts, dim)


def _product(left: ir.Value, right: ir.Value) -> ir.Value:
    """The product of a matrix and a vector, or of a vector and a matrix."""
    one, other = build.shape_of(left), build.shape_of(right)
    return build.dot(left, right, ([], []), ([len(one) - 1], [0]), [*one[:-1], *other[1:]], build.precision("HIGHEST"))


def _added(total: ir.Value, part: ir.Value, start: ir.Value) -> ir.Value:
    """A vector with a part added to its elements from `start` on."""
    [length] = build.shape_of(part)
    return build.update_along(total, stablehlo.add(build.slice_along(total, 0, start, length), part), 0, start)


def _zeros(like: ir.Value) -> ir.Value:
    kind = build.tensor_of(like)
    return build.broadcast(build.zeros(build.with_shape(kind, [])), list(kind.shape))


def _halved(column: ir.Value, cover: Cover) -> ir.Value:
    """A factor, halved where it counts twice: zeros in one of the places would turn infinities into NaN."""
    if not cover.twice:
        return column
    border = cover.size - cover.twice
    last = _cut(column, 0, border, cover.size)
    return _joined([_cut(column, 0, 0, border), stablehlo.multiply(last, build.splat(last.type, 0.5))], 0)


@dataclass(slots=True)
class _Loop:
    """The loop of one matrix.

    factors: one vector for each product. rings: the tensors to slice, by the original tensor and its dimension.
    """

    found: Candidate
    factors: list[ir.Value]
    rings: dict[tuple[ir.Value, int], ir.Value] = field(default_factory=dict)

    def write(self, machine: Machine) -> list[ir.Value]:
        """Build the loop at the current insertion point; return the products."""
        cover, types = self.found.cover, Types()
        for part in self.found.parts:
            self.lay_around(part)
        rings = [_around(factor, 0, cover) for factor in self.factors]
        zeros = [build.zeros(ring.type) for ring in rings]
        initial = [build.scalar_i32(0)]
        initial += [after_input(zero, ring, types.of(zero).bytes) for zero, ring in zip(zeros, rings, strict=True)]
        kinds = [value.type for value in initial]
        made = stablehlo.WhileOp(kinds, initial)
        condition, body = (region.blocks.append(*kinds) for region in made.operation.regions)
        with ir.InsertionPoint(condition):
            stablehlo.return_([build.less_than(condition.arguments[0], build.scalar_i32(cover.trips))])
        with ir.InsertionPoint(body):
            counter, *sums = body.arguments
            after = self.trip(counter, rings, sums)
            stablehlo.return_([stablehlo.add(counter, build.scalar_i32(1)), *after])
        if machine.kind == "cpu" and needs_separate_kernels(made.operation, types):
            keep_separate_kernels(made.operation, partial(has_trait, trait=Trait.POINTWISE))
        return [self.folded(value) for value in list(made.operation.results)[1:]]

    def lay_around(self, part: Part) -> None:
        """Build the ring that a part is sliced from, if needed."""
        match part.how:
            case Slice(dim, _) if (part.value, dim) not in self.rings:
                self.rings[part.value, dim] = _around(part.value, dim, self.found.cover)
            case Count(dim, _) if (part.value, dim) not in self.rings:
                kind = build.with_shape(build.tensor_of(part.value), [self.found.cover.size])
                self.rings[part.value, dim] = _around(stablehlo.iota(kind, 0), 0, self.found.cover)

    def trip(self, counter: ir.Value, rings: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums after one tile: its rows times the factors of its columns, its columns times those of its rows."""
        cover = self.found.cover
        block, chunk = counter, None
        if cover.chunks > 1:
            chunks = build.scalar_i32(cover.chunks)
            block, chunk = stablehlo.divide(counter, chunks), stablehlo.remainder(counter, chunks)
        row = times(block, cover.rows)
        column = row if chunk is None else stablehlo.add(row, times(chunk, cover.columns))
        tile = self.tile(row, column)
        own = self.of_its_own_block(chunk)
        after = []
        for ring, total in zip(rings, sums, strict=True):
            by_columns = _product(build.slice_along(ring, 0, row, cover.rows), tile)
            by_columns = stablehlo.select(own, _zeros(by_columns), by_columns)
            by_rows = _product(tile, build.slice_along(ring, 0, column, cover.columns))
            total = _added(total, by_columns, column)
            after.append(_added(total, by_rows, row))
        return after

    def of_its_own_block(self, chunk: ir.Value | None) -> ir.Value:
        """The columns of the tile that are its own rows: for these the tile has both halves."""
        cover = self.found.cover
        kind = ir.RankedTensorType.get([cover.columns], ir.IntegerType.get_signless(32))
        place = stablehlo.iota(kind, 0)
        if chunk is not None:
            start = build.broadcast(times(chunk, cover.columns), [cover.columns])
            place = stablehlo.add(place, start)
        return build.less_than(place, build.broadcast(build.scalar_i32(cover.rows), [cover.columns]))

    def tile(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """The tile of the matrix at this row and column."""
        cover = self.found.cover
        spans = {ROWS: (row, cover.rows), COLUMNS: (column, cover.columns)}
        made: dict[Placed, ir.Value] = {}
        for part in self.found.parts:
            whole = build.tensor_of(part.value)
            shape = [
                size if label is None else spans[label][1] for size, label in zip(whole.shape, part.place, strict=True)
            ]
            made[part.value, part.place] = self.tile_of(part, build.with_shape(whole, shape), spans, made)
        return made[self.found.matrix, (ROWS, COLUMNS)]

    def tile_of(self, part: Part, kind: ir.RankedTensorType, spans: Spans, made: Mapping[Placed, ir.Value]) -> ir.Value:
        """The tile, of type `kind`, of one tensor. made: those of its operands."""
        match part.how:
            case Whole():
                return part.value
            case Splat(number):
                return build.broadcast(build.splat(build.with_shape(kind, []), number), list(kind.shape))
            case Slice(dim, label):
                return build.slice_along(self.rings[part.value, dim], dim, *spans[label])
            case Count(dim, label):
                counted = build.slice_along(self.rings[part.value, dim], 0, *spans[label])
                return stablehlo.broadcast_in_dim(kind, counted, ir.DenseI64ArrayAttr.get([dim]))
            case Clone(op, operands):
                return clone_on(op, [made[operand] for operand in operands], list(kind.shape), {})

    def folded(self, total: ir.Value) -> ir.Value:
        """A sum along the ring, and beyond it, folded to the actual indices."""
        cover = self.found.cover
        again = _cut(total, 0, cover.ring, cover.ring + cover.beyond)
        begin = stablehlo.add(_cut(total, 0, 0, cover.beyond), again)
        return _joined([begin, _cut(total, 0, cover.beyond, cover.size)], 0)
