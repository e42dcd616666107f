"""The diagonal of a matrix, as JAX writes it: a mask under a sum, or a gather at (0, 0), (1, 1), ..."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ops.affine import counting
from exla_opt.ops.affine_reader import AffineReader


def masked_diagonal(value: ir.Value) -> tuple[ir.Value, tuple[int, int]] | None:
    """The tensor of which only the diagonal of two dimensions is kept, zero elsewhere, and these dimensions."""
    op = defining_op(value, "stablehlo.select")
    if op is None or splat_value(op.operands[2]) != 0:
        return None
    mask, where = op.operands[0], list(range(len(build.shape_of(value))))
    while (
        spread := defining_op(mask, "stablehlo.broadcast_in_dim")
    ) is not None:  # the same mask for every matrix of a batch
        dims = integers(spread, "broadcast_dimensions", [])
        if build.shape_of(spread.operands[0]) != [build.shape_of(mask)[dim] for dim in dims]:
            return None
        mask, where = spread.operands[0], [where[dim] for dim in dims]
    equal = defining_op(mask, "stablehlo.compare")
    if equal is None or stablehlo.ComparisonDirectionAttr(equal.attributes["comparison_direction"]).value != "EQ":
        return None
    one, other = (_counts_along(operand) for operand in equal.operands)
    if one is None or other is None or one == other:
        return None
    shape = build.shape_of(value)
    one, other = where[one], where[other]
    return (op.operands[1], (one, other)) if shape[one] == shape[other] else None


def _counts_along(value: ir.Value) -> int | None:
    """The dimension along which an integer tensor is an iota; None if it is not."""
    found = AffineReader().of(value)
    shape = build.shape_of(value)
    return next((dim for dim, size in enumerate(shape) if size > 1 and found == counting(shape, dim)), None)


def diagonal_of(op: ir.Operation) -> tuple[ir.Value, tuple[int, int]] | None:
    """The tensor of which a gather reads the diagonal of two dimensions, and these dimensions.

    The diagonal is the last dimension of the result, after those that are read in full. None if the gather reads
    anything else.
    """
    if op.name != "stablehlo.gather":
        return None
    tensor, places = op.operands
    shape = build.shape_of(tensor)
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    indexed = sorted([*numbers.collapsed_slice_dims, *numbers.operand_batching_dims])
    if len(indexed) != 2 or not {*numbers.start_index_map} <= {*indexed}:
        return None
    one, other = indexed
    whole = [1 if dim in indexed else size for dim, size in enumerate(shape)]
    if shape[one] != shape[other] or integers(op, "slice_sizes", []) != whole:
        return None
    if list(numbers.offset_dims) != list(range(len(shape) - 2)):
        return None
    vector = numbers.index_vector_dim
    if build.shape_of(places) != [shape[one], len(numbers.start_index_map)] or vector != 1:
        return None
    reader, positions = AffineReader(), counting([shape[one], 1], 0)
    if any(reader.of(places, (vector, column)) != positions for column in range(len(numbers.start_index_map))):
        return None
    return tensor, (one, other)
