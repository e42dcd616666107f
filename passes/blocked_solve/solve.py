"""Writes a triangular solve as loops over blocks, in the buffer of the right-hand sides."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

from ..algebra.blocks import Blocks, count, product, solved, tile_of, times, with_tile


@dataclass(frozen=True, slots=True)
class Solve:
    """Builds op(a) x = b, or x op(a) = b if `left` is false, some right-hand sides at a time.

    blocks: of the rows and columns of a. sides: of the right-hand sides. lower, transposed, unit: as in the op.
    by_columns: whether triangular solves need column-major tensors.
    A block has a number, of type tensor<i32>, and a length: that of the others or the rest.
    """

    matrix: ir.Value
    blocks: Blocks
    sides: Blocks
    left: bool
    lower: bool
    transposed: bool
    unit: bool
    by_columns: bool

    @property
    def is_forward(self) -> bool:
        """Whether the first block is solved first."""
        return (self.lower != self.transposed) == self.left

    def build(self, sides: ir.Value) -> ir.Value:
        """x, written over b."""
        end, length = build.scalar_i32(self.sides.count), self.sides.length
        made = count(build.scalar_i32(0), end, sides, lambda number, x: self.solve_sides(x, number, length))
        return self.solve_sides(made, end, self.sides.rest) if self.sides.rest else made

    def solve_sides(self, x: ir.Value, place: ir.Value, width: int) -> ir.Value:
        """Some of the right-hand sides, block by block."""
        zero, end, last = build.scalar_i32(0), build.scalar_i32(self.blocks.count), self.blocks.rest
        if last and not self.is_forward:
            x = self.solve_block(x, end, last, place, width)
        x = count(zero, end, x, lambda step, made: self.solve_block(made, self.nth(step), None, place, width))
        return self.solve_block(x, end, last, place, width) if last and self.is_forward else x

    def nth(self, step: ir.Value) -> ir.Value:
        """The number of the block that a step solves."""
        return step if self.is_forward else stablehlo.subtract(build.scalar_i32(self.blocks.count - 1), step)

    def solve_block(self, x: ir.Value, number: ir.Value, rest: int | None, place: ir.Value, width: int) -> ir.Value:
        """One block of x, from the solved ones. rest: its length if it is the last, shorter one."""
        length, end = rest or self.blocks.length, build.scalar_i32(self.blocks.count)
        made = self.part(x, number, length, place, width)

        def subtract(other: ir.Value, sum_so_far: ir.Value) -> ir.Value:
            known = self.part(x, other, self.blocks.length, place, width)
            return self.without(sum_so_far, known, number, length, other, self.blocks.length)

        if self.is_forward:
            made = count(build.scalar_i32(0), number, made, subtract)
        elif rest is None:
            made = count(stablehlo.add(number, build.scalar_i32(1)), end, made, subtract)
            if self.blocks.rest:
                known = self.part(x, end, self.blocks.rest, place, width)
                made = self.without(made, known, number, length, end, self.blocks.rest)
        diagonal = tile_of(self.matrix, [times(number, self.blocks.length)] * 2, (length, length))
        made = solved(
            diagonal,
            made,
            left=self.left,
            lower=self.lower,
            transposed=self.transposed,
            unit=self.unit,
            by_columns=self.by_columns,
        )
        return with_tile(x, made, self.starts(number, place))

    def starts(self, number: ir.Value, place: ir.Value) -> list[ir.Value]:
        """The start of a block of some right-hand sides."""
        found = [times(number, self.blocks.length), times(place, self.sides.length)]
        return found if self.left else found[::-1]

    def part(self, x: ir.Value, number: ir.Value, length: int, place: ir.Value, width: int) -> ir.Value:
        """A block of some right-hand sides."""
        return tile_of(x, self.starts(number, place), (length, width) if self.left else (width, length))

    def without(
        self, total: ir.Value, known: ir.Value, number: ir.Value, length: int, other: ir.Value, others: int
    ) -> ir.Value:
        """Block `number` of b minus the contribution of block `other` of x."""
        starts, sizes = [times(number, self.blocks.length), times(other, self.blocks.length)], (length, others)
        is_turned = self.left == self.transposed  # whether a has the tile of (other, number)
        tile = tile_of(self.matrix, starts[::-1] if is_turned else starts, sizes[::-1] if is_turned else sizes)
        over = 0 if is_turned else 1
        parts = product(tile, known, (over, 0)) if self.left else product(known, tile, (1, over))
        return stablehlo.subtract(total, parts)
