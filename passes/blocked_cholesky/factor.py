"""Writes a Cholesky factorisation as loops over blocks, in the buffer of the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

from ..algebra.blocks import Blocks, count, in_triangle, product, solved, tile_of, times, with_tile


@dataclass(frozen=True, slots=True)
class Factor:
    """Builds the factor of a matrix of `size` rows. The upper one is stored as the transpose of the lower one.

    A block has a number, of type tensor<i32>, and a length: that of the others or the rest.
    masked: whether a matrix without a factor becomes NaN only in its triangle, or everywhere, as in XLA.
    by_columns: whether triangular solves need column-major tensors.
    """

    size: int
    blocks: Blocks
    lower: bool
    masked: bool
    by_columns: bool

    def build(self, matrix: ir.Value) -> ir.Value:
        """The factor, with zeros in the other triangle; NaN if the matrix has none."""
        zero, end = build.scalar_i32(0), build.scalar_i32(self.blocks.count)
        made = count(zero, end, matrix, self.column)
        if self.blocks.rest:
            made = self.factor_diagonal(made, end, self.blocks.rest)
        return self.fill_if_failed(made)

    def column(self, number: ir.Value, matrix: ir.Value) -> ir.Value:
        """One column of blocks, from those on its left."""
        length, end = self.blocks.length, build.scalar_i32(self.blocks.count)
        matrix = self.factor_diagonal(matrix, number, length)
        following = stablehlo.add(number, build.scalar_i32(1))
        matrix = count(following, end, matrix, lambda row, made: self.eliminate(made, row, length, number))
        return self.eliminate(matrix, end, self.blocks.rest, number) if self.blocks.rest else matrix

    def starts(self, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        """The start of a block of the lower factor, in the stored matrix."""
        found = [times(row, self.blocks.length), times(column, self.blocks.length)]
        return found if self.lower else found[::-1]

    def tile(self, matrix: ir.Value, row: ir.Value, rows: int, column: ir.Value, columns: int) -> ir.Value:
        """A block of the lower factor as stored: [rows, columns], or transposed."""
        return tile_of(matrix, self.starts(row, column), (rows, columns) if self.lower else (columns, rows))

    def reduced(self, matrix: ir.Value, row: ir.Value, rows: int, column: ir.Value, columns: int) -> ir.Value:
        """A block of the matrix minus the products of the factor's blocks on its left."""
        length, over = self.blocks.length, 1 if self.lower else 0

        def subtract(number: ir.Value, sum_so_far: ir.Value) -> ir.Value:
            one = self.tile(matrix, row, rows, number, length)
            other = self.tile(matrix, column, columns, number, length)
            pair = (one, other) if self.lower else (other, one)
            return stablehlo.subtract(sum_so_far, product(*pair, (over, over)))

        return count(build.scalar_i32(0), column, self.tile(matrix, row, rows, column, columns), subtract)

    def factor_diagonal(self, matrix: ir.Value, number: ir.Value, length: int) -> ir.Value:
        """The matrix with a block of the diagonal replaced by its factor."""
        made = stablehlo.cholesky(self.reduced(matrix, number, length, number, length), lower=self.lower)
        inside = in_triangle(build.tensor_of(made), self.lower)
        made = stablehlo.select(inside, made, build.zeros(made.type))
        return with_tile(matrix, made, self.starts(number, number))

    def eliminate(self, matrix: ir.Value, row: ir.Value, rows: int, column: ir.Value) -> ir.Value:
        """The matrix with a block below the diagonal factored, and zeros in the opposite block."""
        length = self.blocks.length
        diagonal = self.tile(matrix, column, length, column, length)
        sides = self.reduced(matrix, row, rows, column, length)
        made = solved(
            diagonal, sides, left=not self.lower, lower=self.lower, transposed=True, by_columns=self.by_columns
        )
        opposite = build.zeros(build.with_shape(build.tensor_of(made), build.shape_of(made)[::-1]))
        return with_tile(with_tile(matrix, made, self.starts(row, column)), opposite, self.starts(column, row))

    def fill_if_failed(self, matrix: ir.Value) -> ir.Value:
        """Fill the factor of a matrix without one with NaN, as XLA does.

        That of a block is, and so are all later ones, which depend on it: the first element of the last one shows it.
        Its last element does not: the root of infinity is NaN too, and XLA does not count that alone as a failure.
        """
        kind = build.tensor_of(matrix)
        scalar, line = build.with_shape(kind, []), build.with_shape(kind, [1, self.size])
        start = self.size - (self.blocks.rest or self.blocks.length)
        first = stablehlo.reshape(scalar, stablehlo.slice(matrix, [start] * 2, [start + 1] * 2, [1, 1]))
        failed = build.compare(first, first, "NE", "FLOAT")
        rows = stablehlo.select(failed, build.scalar_i32(self.size), build.scalar_i32(0))

        def fill(row: ir.Value, made: ir.Value) -> ir.Value:
            return with_tile(made, self.failed_row(line, row), [row, build.scalar_i32(0)])

        return count(build.scalar_i32(0), rows, matrix, fill)

    def failed_row(self, line: ir.RankedTensorType, row: ir.Value) -> ir.Value:
        """A row of the factor of a matrix that has none."""
        if not self.masked:
            return build.splat(line, nan)
        places = stablehlo.iota(ir.RankedTensorType.get(line.shape, ir.IntegerType.get_signless(32)), 1)
        own = build.compare(places, build.broadcast(row, line.shape), "LE" if self.lower else "GE", "SIGNED")
        return stablehlo.select(own, build.splat(line, nan), build.zeros(line))
