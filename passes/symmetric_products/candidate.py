"""Decides which products with a symmetric matrix can use half of it, and whether that pays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ir.walk import operands_of
from exla_opt.ops.effects import has_order
from exla_opt.ops.reducers import monoid_of
from exla_opt.options import Options
from exla_opt.passes.algebra.numbering import Numbering
from exla_opt.passes.order_statistics.again import seconds_of_chain

from .cover import Cover, covers
from .parts import COLUMNS, ROWS, Clone, Part, Slice, parts_of

# The required speed-up of a rewritten product: the figures are rough.
_CLEARLY = 1.2
_FLOATS = ("f32", "f64")
# Ops that XLA recomputes wherever they are read.
_REPEATED = ("stablehlo.broadcast_in_dim", "stablehlo.constant", "stablehlo.iota")
# In a smaller matrix, all positions in the ring fit in 32 bits.
_MOST_BYTES = 2**60
# A product with this many columns takes as long as any matrix product, and does not count as a few vectors.
_MOST_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A symmetric matrix all of whose readers multiply it with few columns, or sum it.

    op: computes it. readers: in program order. parts: how its tiles are computed. cover: where they are.
    """

    matrix: ir.Value
    op: ir.Operation
    readers: tuple[ir.Operation, ...]
    parts: tuple[Part, ...]
    cover: Cover


def candidate_of(matrix: ir.Value, options: Options, types: Types) -> Candidate | None:
    """The candidate of a matrix with all of its readers; None if it is none."""
    kind = types.of(matrix)
    is_square = len(kind.shape) == 2 and kind.shape[0] == kind.shape[1]
    if not is_square or kind.dtype not in _FLOATS or not options.size_threshold < kind.bytes < _MOST_BYTES:
        return None
    op = defining_op(matrix)
    if op is None or not (readers := readers_of(matrix, op.block, types)):
        return None
    parts = parts_of(matrix, op.block)
    if parts is None or not is_legal(matrix, parts, types, options.size_threshold):
        return None
    cover = cover_for(parts, readers, options, types)
    return None if cover is None else Candidate(matrix, op, readers, tuple(parts), cover)


def readers_of(matrix: ir.Value, block: ir.Block, types: Types) -> tuple[ir.Operation, ...]:
    """All readers of a matrix, in program order, if one loop can compute them all; else empty.

    It can if each multiplies the matrix with few columns, or sums it, and none depends on another one, directly or
    through an op with an effect between them.
    """
    ops = list(dict.fromkeys(use.owner.operation for use in matrix.uses))
    if any(op.block != block or not _is_product(op, matrix, types) for op in ops):
        return ()
    if len(ops) > 1:
        places = {view.operation: place for place, view in enumerate(block.operations)}
        ops.sort(key=lambda op: places[op])
        between = list(places)[places[ops[0]] : places[ops[-1]]]
        if any(map(has_order, between)) or _needs_one_of(ops, places):
            return ()
    return tuple(ops)


def _needs_one_of(ops: Sequence[ir.Operation], places: Mapping[ir.Operation, int]) -> bool:
    """Whether one of some ops, which are in program order, depends on another one."""
    first, readers, seen = places[ops[0]], frozenset(ops), set(ops)
    stack = [value for op in ops for value in op.operands]
    while stack:
        op = defining_op(stack.pop())
        if op is None or places.get(op, -1) < first:
            continue
        if op in readers:
            return True
        if op not in seen:
            seen.add(op)
            stack += operands_of(op)
    return False


def _is_product(op: ir.Operation, matrix: ir.Value, types: Types) -> bool:
    """Whether an op multiplies the matrix, over one of its dimensions, with few columns of its type, or sums it."""
    if len(op.results) != 1 or has_discardable_attributes(op):
        return False
    dtype = types.of(matrix).dtype
    if any(types.of(value).dtype != dtype for value in (*op.operands, op.results[0])):
        return False
    if op.name == "stablehlo.reduce":
        sums = monoid_of(op) == "add" and splat_value(op.operands[1]) == 0
        return op.operands[0] == matrix and sums and len(types.of(op.results[0]).shape) < 2
    if op.name != "stablehlo.dot_general" or "algorithm" in op.attributes or op.operands[0] == op.operands[1]:
        return False
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    if len(numbers.lhs_contracting_dimensions) != 1 or len(numbers.lhs_batching_dimensions):
        return False
    return prod(types.of(op.results[0]).shape) <= _MOST_COLUMNS * types.of(matrix).shape[0]


def columns_of(op: ir.Operation, size: int, types: Types) -> int:
    """The number of columns that a reader multiplies a matrix of `size` rows with; 1 for a sum."""
    return 1 if op.name == "stablehlo.reduce" else prod(types.of(op.results[0]).shape) // size


def is_legal(matrix: ir.Value, parts: Sequence[Part], types: Types, threshold: int) -> bool:
    """Whether the matrix is symmetric by its formula, and no big intermediate tensor has other readers.

    Tensors that are sliced must be small: their rings take one and a half times their memory.
    """
    inside = set(_ops_of(parts))
    for op in inside - {defining_op(matrix)}:
        is_made = op.name not in _REPEATED and types.of(op.results[0]).bytes > threshold
        if is_made and any(use.owner.operation not in inside for use in op.results[0].uses):
            return False
    sliced = {(part.value, part.how.dim) for part in parts if isinstance(part.how, Slice)}
    if 2 * sum(types.of(value).bytes for value, _ in sliced) > threshold:
        return False
    numbering = Numbering()
    return numbering.number(matrix, (ROWS, COLUMNS)) == numbering.number(matrix, (COLUMNS, ROWS))


def _ops_of(parts: Iterable[Part]) -> list[ir.Operation]:
    """The ops that compute the tensors with both rows and columns, once for each tile of them."""
    return [op for part in parts if part.is_matrix and (op := defining_op(part.value)) is not None]


def cover_for(parts: Sequence[Part], readers: Sequence[ir.Operation], options: Options, types: Types) -> Cover | None:
    """The cover with which the products take the least time; None if that is not clearly less than now.

    Half of the matrix is computed, and read twice, by its rows and by its columns, for each column of the products.
    Adding the results of a trip takes four kernels per column.
    """
    machine, matrix = options.machine, parts[-1].value
    kind = types.of(matrix)
    size = kind.shape[0]
    elements = size * size
    making = seconds_of_chain(_ops_of(parts), types, machine) / elements
    reading = kind.element_bytes / machine.cache_bytes_per_second
    columns = sum(columns_of(op, size, types) for op in readers)
    if making < 2 * columns * reading:
        return None
    widest = max(types.of(part.value).bytes for part in parts if part.is_matrix and isinstance(part.how, Clone))
    trips = -(-widest // options.slice_bytes)
    before = elements * (making + reading) + trips * machine.seconds_per_trip

    def seconds(cover: Cover) -> float:
        is_near = cover.tile * kind.element_bytes <= machine.cache_bytes
        again = reading if is_near else kind.element_bytes / machine.bytes_per_second
        of_tile = cover.tile * (making + 2 * columns * again)
        return cover.trips * (of_tile + machine.seconds_per_trip + 4 * columns * machine.seconds_per_kernel)

    thickest = max((types.of(part.value).bytes for part in parts if isinstance(part.how, Slice)), default=1)
    limits = (options.slice_bytes * elements // widest, options.slice_bytes * size // thickest)
    best = min(covers(size, *limits), key=seconds, default=None)
    return best if best is not None and seconds(best) * _CLEARLY <= before else None
