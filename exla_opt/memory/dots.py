"""Products of matrices in XLA: the dimension orders that it can read, and the copies of other operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integers
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op

from .machine import CPU, Machine

# XLA:CPU transposes a matrix of this many bytes before it multiplies it with a vector.
_LONG_VECTOR = 2**14
_BYTE_BITS, _MATRIX_RANK = 8, 2
# A library multiplies matrices with a side of at least this length.
_LEAST_SIDE = 8


def is_folded(op: ir.Operation, types: Types, machine: Machine = CPU) -> bool:
    """Whether an op is a transpose that its readers, dots and sums, absorb by renumbering dimensions."""
    if op.name != "stablehlo.transpose":
        return False
    uses = list(op.results[0].uses)
    return bool(uses) and all(_reads_past(use.owner.operation, use.operand_number, op, types, machine) for use in uses)


def _reads_past(reader: ir.Operation, operand: int, transpose: ir.Operation, types: Types, machine: Machine) -> bool:
    if reader.name == "stablehlo.reduce":
        return len(reader.results) == 1 and operand == 0
    if reader.name != "stablehlo.dot_general" or reader.operands[0] == reader.operands[1]:
        return False
    other = types.of(reader.operands[1 - operand])
    if machine.kind == "cpu" and len(_real(other.shape)) == 1 and other.bytes >= _LONG_VECTOR:
        return False
    return not _is_copied(reader, operand, types, machine, integers(transpose, "permutation", []))


def copied_sides(op: ir.Operation, types: Types, machine: Machine = CPU) -> tuple[int, ...]:
    """The operands that a dot reads in another dimension order than they have."""
    found = []
    for side in (0, 1):
        inner = defining_op(op.operands[side])
        past = inner is not None and is_folded(inner, types, machine)
        if not past and _is_copied(op, side, types, machine):
            found.append(side)
    return tuple(found)


def is_by_vector(op: ir.Operation, types: Types) -> bool:
    """Whether an operand of a dot is a vector: besides batch and contracted dimensions, it has one element."""
    return any(_is_vector(types.of(op.operands[side]).shape, *dot_dims(op, side)) for side in (0, 1))


def _is_vector(shape: Sequence[int], batch: Sequence[int], sums: Sequence[int]) -> bool:
    return all(size == 1 or dim in batch or dim in sums for dim, size in enumerate(shape))


def is_read_in(op: ir.Operation, side: int, types: Types, machine: Machine, order: Sequence[int]) -> bool:
    """Whether a dot reads an operand without a copy. order: its dimensions, as those of the tensor in memory."""
    return not _is_copied(op, side, types, machine, order)


def _is_copied(op: ir.Operation, side: int, types: Types, machine: Machine, order: Sequence[int] = ()) -> bool:
    """Whether an operand's dimensions are neither batch, free, contracted nor batch, contracted, free, in order.

    order: the operand's dimensions, as those of the tensor that is read instead.
    """
    batches, sums = dot_dims(op, side)
    shape = types.of(op.operands[side]).shape
    order = order or range(len(shape))
    sizes = {order[dim]: size for dim, size in enumerate(shape)}
    batch, contracted = [order[dim] for dim in batches], {order[dim] for dim in sums}
    kinds = [0 if dim in batch else 1 if dim in contracted else 2 for dim in sorted(sizes) if sizes[dim] != 1]
    runs = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
    mixed = batch != sorted(batch) and len(_real([sizes[dim] for dim in batch])) > 1
    if machine.kind == "gpu":
        if _wants_rows(op, types):
            return runs != [kind for kind in (0, 2, 1) if kind in kinds] or mixed
        if 0 in kinds and (kinds.count(1) > 1 or kinds.count(2) > 1):
            return not _is_canonical(op, side, sizes, order)
        # cuBLAS accepts any order of the kinds, except the batch last.
        return mixed or len(set(runs)) != len(runs) or (len(runs) > 1 and runs[-1] == 0)
    if mixed or len(set(runs)) != len(runs) or 0 in runs[1:]:
        return True
    if side == 1 and not _is_paired_in_order(op, sizes, order):
        return True
    # Where dimensions are merged or dropped, they must be in the dot's order.
    return _is_reshaped(op, side, shape) and [kind for kind in runs if kind] == ([1, 2] if side == 0 else [2, 1])


def _is_reshaped(op: ir.Operation, side: int, shape: Sequence[int]) -> bool:
    """Whether XLA:CPU merges several dimensions of one kind, or drops one of one element, after it orders them."""
    batch, contracted = dot_dims(op, side)
    if len(contracted) > 1 or len(shape) - len(batch) - len(contracted) > 1:
        return True
    return any(shape[dim] == 1 for dim in batch) and not _is_ordered(op)


def _is_ordered(op: ir.Operation) -> bool:
    """Whether XLA takes a dot as it is: batches first, and one contracted and one free dimension on either side."""
    dims = [(*dot_dims(op, side), ir.RankedTensorType(op.operands[side].type).rank) for side in (0, 1)]
    return all(
        batch == list(range(len(batch))) and len(contracted) == 1 and rank <= len(batch) + _MATRIX_RANK
        for batch, contracted, rank in dims
    )


def _wants_rows(op: ir.Operation, types: Types) -> bool:
    """Whether a library reads both operands along the contraction: int8 matrices with an int32 result, and float8."""
    if all(float_bits(element_type(value)) == _BYTE_BITS for value in op.operands):
        return True
    kinds = [str(element_type(value)) for value in (*op.operands, *op.results)]
    return kinds == ["i8", "i8", "i32"] and len(types.of(op.results[0]).shape) == _MATRIX_RANK


def _is_canonical(op: ir.Operation, side: int, sizes: Mapping[int, int], order: Sequence[int]) -> bool:
    """Whether an operand's dimensions are batch, free, contracted, or for the right one batch, contracted, free.

    XLA:GPU reshapes batches of matrices only from this order, with contracted dimensions as in the left operand.
    """
    own = [order[dim] for dim in copied_order(op, side) if sizes[order[dim]] != 1]
    return own == sorted(own)


def _is_paired_in_order(op: ir.Operation, sizes: Mapping[int, int], order: Sequence[int]) -> bool:
    """Whether the right operand's contracted dimensions are in the order of the left one's."""
    pairs = sorted(zip(dot_dims(op, 0)[1], dot_dims(op, 1)[1], strict=True))
    own = [order[dim] for _, dim in pairs if sizes[order[dim]] != 1]
    return own == sorted(own)


def is_outer_product(op: ir.Operation, types: Types) -> bool:
    """Whether a dot sums nothing: each element of its result is one product."""
    shape = types.of(op.operands[0]).shape
    return all(shape[dim] == 1 for dim in dot_dims(op, 0)[1])


def dot_dims(op: ir.Operation, side: int) -> tuple[list[int], list[int]]:
    """The batch and the contracted dimensions of a dot's operand."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batches = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)[side]
    sums = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)[side]
    return list(batches), list(sums)


def has_kernel(op: ir.Operation, types: Types, copied: Sequence[int]) -> bool:
    """Whether XLA:CPU's library of kernels multiplies two matrices, the first one in rows.

    copied: the operands that it reads from copies in its own order.
    """
    if types.of(op.results[0]).dtype not in ("f32", "f64"):
        return False
    summed = dot_dims(op, 0)[1]
    shapes = [types.of(value).shape for value in op.operands]
    free = [
        prod(size for dim, size in enumerate(shape) if dim not in {*dims[0], *dims[1]})
        for shape, dims in zip(shapes, (dot_dims(op, 0), dot_dims(op, 1)), strict=True)
    ]
    in_rows = 0 in copied or sorted(summed) == list(range(len(shapes[0]) - len(summed), len(shapes[0])))
    return in_rows and 1 not in free and max(*free, prod(shapes[0][dim] for dim in summed)) >= _LEAST_SIDE


def merged_sides(op: ir.Operation, types: Types, summed: bool = True) -> tuple[int, ...]:
    """The operands of a dot that XLA turns into matrices by merging several dimensions of one kind.

    summed: whether contracted dimensions count as well.
    """
    found = []
    for side in (0, 1):
        batch, contracted = dot_dims(op, side)
        shape = types.of(op.operands[side]).shape
        free = [dim for dim in range(len(shape)) if dim not in {*batch, *contracted}]
        if len(free) > 1 or (summed and len(contracted) > 1):
            found.append(side)
    return tuple(found)


def _real(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def copied_order(op: ir.Operation, side: int) -> list[int]:
    """A dot's operand dimensions in the order in which the dot reads a copy of it.

    Contracted dimensions are in the order of the left operand.
    """
    batch, contracted = dot_dims(op, side)
    summed = [dim for _, dim in sorted(zip(dot_dims(op, 0)[1], contracted, strict=True))]
    rank = ir.RankedTensorType(op.operands[side].type).rank
    free = [dim for dim in range(rank) if dim not in {*batch, *contracted}]
    return [*batch, *free, *summed] if side == 0 else [*batch, *summed, *free]
