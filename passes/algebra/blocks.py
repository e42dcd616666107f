"""Big matrices block by block, in one buffer: block lengths, the loops over blocks, and their tiles.

NOTE [One buffer]: XLA keeps a loop-carried tensor in one buffer if every tile is read before the next one is written.
So every value written is computed from all that was read since the last write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import TensorType
from exla_opt.options import Options

# Longer blocks make products no faster (on two cores, 3,072 rows: blocks of 256 take 1.7 times as long as of 512). A
# GPU has more cores to fill, and a loop trip costs it as much as a small product; the exact figure was not timed.
_LONGEST = {"cpu": 512, "gpu": 2048}
# A shorter block is not worth a trip; if slices are small, one with a 256th of the matrix still takes little memory.
_SHORTEST, _MOST_BLOCKS = 16, 16
_FLOATS = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class Blocks:
    """`count` blocks of `length` indices, and one of `rest` after them, which may be 0."""

    length: int
    count: int
    rest: int


def blocks_of(size: int, longest: int, least: int = 2) -> Blocks:
    """Blocks of about equal length, at most `longest`, and at least `least` of them."""
    number = max(-(-size // longest), least)
    length = -(-size // number)
    return Blocks(length, *divmod(size, length))


def longest_block(size: int, options: Options, element_bytes: int) -> int:
    """The rows of a square tile of a matrix of `size` rows that takes no more bytes than one slice, or little."""
    longest = max(isqrt(options.slice_bytes // element_bytes), size // _MOST_BLOCKS, _SHORTEST)
    return min(longest, _LONGEST[options.machine.kind])


def is_solved_here(options: Options) -> bool:
    """Whether big matrices may be factored in blocks: the compiler's own way is known, and sums may be reassociated."""
    return options.machine.kind in _LONGEST and options.reassociate


def is_by_columns(options: Options) -> bool:
    """Whether the compiler calls a library for triangular solves that needs column-major tensors."""
    return options.machine.kind == "gpu"


def is_one_real_matrix(kind: TensorType) -> bool:
    """Whether the tensor is one matrix of 32 or 64 bit floats, possibly with further dimensions of one element."""
    return kind.dtype in _FLOATS and len(kind.shape) >= 2 and prod(kind.shape[:-2]) == 1


def as_matrix(value: ir.Value) -> ir.Value:
    """The same tensor without the dimensions before the last two, which have one element."""
    shape = build.shape_of(value)
    if len(shape) == 2:
        return value
    return stablehlo.reshape(build.with_shape(build.tensor_of(value), shape[-2:]), value)


def as_before(matrix: ir.Value, value: ir.Value) -> ir.Value:
    """The matrix in the shape of `value`."""
    return matrix if matrix.type == value.type else stablehlo.reshape(value.type, matrix)


def count(
    start: ir.Value, stop: ir.Value, initial: ir.Value, step: Callable[[ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """The result of step(i, tensor) for all i of [start, stop), as a loop. start, stop: of type tensor<i32>."""
    types = [start.type, initial.type]
    loop = stablehlo.WhileOp(types, [start, initial])
    condition, body = (region.blocks.append(*types) for region in loop.operation.regions)
    with ir.InsertionPoint(condition):
        stablehlo.return_([build.less_than(condition.arguments[0], stop)])
    with ir.InsertionPoint(body):
        counter, carried = body.arguments
        after = step(counter, carried)
        stablehlo.return_([stablehlo.add(counter, build.scalar_i32(1)), after])
    result: ir.Value = loop.operation.results[1]
    return result


def times(index: ir.Value, number: int) -> ir.Value:
    """A multiple of an index."""
    return stablehlo.multiply(index, build.scalar_i32(number))


def tile_of(matrix: ir.Value, starts: Sequence[ir.Value], sizes: Sequence[int]) -> ir.Value:
    """The tile of a matrix at these starts. starts: of type tensor<i32>, in range."""
    return stablehlo.dynamic_slice(matrix, list(starts), ir.DenseI64ArrayAttr.get(list(sizes)))


def with_tile(matrix: ir.Value, tile: ir.Value, starts: Sequence[ir.Value]) -> ir.Value:
    """The matrix with another tile at these starts."""
    return stablehlo.dynamic_update_slice(matrix, tile, list(starts))


def product(left: ir.Value, right: ir.Value, contracted: tuple[int, int]) -> ir.Value:
    """The product of two matrices over one dimension of each, at full precision."""
    one, other = contracted
    shape = [build.shape_of(left)[1 - one], build.shape_of(right)[1 - other]]
    return build.dot(left, right, ([], []), ([one], [other]), shape, build.precision("HIGHEST"))


def solved(
    matrix: ir.Value,
    sides: ir.Value,
    *,
    left: bool,
    lower: bool,
    transposed: bool,
    by_columns: bool,
    unit: bool = False,
) -> ir.Value:
    """A triangular_solve. by_columns: whether its compiler needs both tensors column-major, as for cuBLAS.

    Then all operands are transposed, as a row-major matrix is the transpose of a column-major one. Otherwise XLA would
    make the enclosing matrices column-major, and copy them before and after the loop.
    """
    how = stablehlo.TransposeAttr.get("TRANSPOSE" if transposed else "NO_TRANSPOSE")
    if not by_columns:
        return stablehlo.triangular_solve(matrix, sides, left, lower, unit, how)
    made = stablehlo.triangular_solve(transpose(matrix), transpose(sides), not left, not lower, unit, how)
    return transpose(made)


def transpose(matrix: ir.Value) -> ir.Value:
    """The transpose of a matrix."""
    return stablehlo.transpose(matrix, ir.DenseI64ArrayAttr.get([1, 0]))


def in_triangle(kind: ir.RankedTensorType, lower: bool) -> ir.Value:
    """The mask of the lower, or upper, triangle of a matrix of this type, including the diagonal."""
    numbers = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_signless(32))
    row, column = (stablehlo.iota(numbers, dim) for dim in (0, 1))
    return build.compare(row, column, "GE" if lower else "LE", "SIGNED")
