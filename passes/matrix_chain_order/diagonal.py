"""The diagonal of a matrix, as JAX writes it: a mask under a sum, or a gather at (0, 0), (1, 1), ..."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.values import defining_op, splat_value

_BROADCAST = "stablehlo.broadcast_in_dim"


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
    """The dimension along which an integer tensor counts 0, 1, 2, ...; None when it does not."""
    along = list(range(len(build.shape_of(value))))  # the dimension of `value` that each one below becomes
    longest = max(build.shape_of(value), default=0)
    while _holds(value, longest):
        if (op := defining_op(value, "stablehlo.add")) is not None and splat_value(op.operands[1]) == 0:
            value = op.operands[0]
        elif (op := defining_op(value, "stablehlo.select")) is not None and _is_negative(
            op.operands[0], op.operands[2]
        ):
            value = op.operands[2]
        elif (op := defining_op(value, "stablehlo.convert")) is not None:
            value = op.operands[0]
        elif (op := defining_op(value, _BROADCAST)) is not None:
            value, along = op.operands[0], [along[dim] for dim in integers(op, "broadcast_dimensions", [])]
        elif (op := defining_op(value, "stablehlo.iota")) is not None:
            dim = integer(op, "iota_dimension")
            return along[dim] if build.shape_of(value)[dim] > 1 else None
        else:
            return None
    return None


def _holds(value: ir.Value, longest: int) -> bool:
    """Whether the tensor is one of integers wide enough to count to `longest`."""
    kind = build.tensor_of(value).element_type
    return isinstance(kind, ir.IntegerType) and longest < 2 ** (kind.width - 1)


def _is_negative(mask: ir.Value, value: ir.Value) -> bool:
    """Whether the mask asks where a counting tensor is below zero, which is nowhere."""
    op = defining_op(mask, "stablehlo.compare")
    if op is None or op.operands[0] != value or splat_value(op.operands[1]) != 0:
        return False
    return bool(stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value == "LT")


def diagonal_of(op: ir.Operation) -> tuple[ir.Value, tuple[int, int]] | None:
    """The tensor of which a gather reads the diagonal of two dimensions, and these dimensions.

    The diagonal is the last dimension of the result, behind those that are read whole. None when the gather reads
    anything else.
    """
    if op.name != "stablehlo.gather":
        return None
    tensor, places = op.operands
    shape = build.shape_of(tensor)
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    collapsed = list(numbers.collapsed_slice_dims)
    if len(collapsed) != 2 or sorted(numbers.start_index_map) != collapsed or list(numbers.operand_batching_dims):
        return None
    one, other = collapsed
    whole = [1 if dim in collapsed else size for dim, size in enumerate(shape)]
    if shape[one] != shape[other] or integers(op, "slice_sizes", []) != whole:
        return None
    joined = defining_op(places, "stablehlo.concatenate")
    if joined is None or integer(joined, "dimension") != 1 or numbers.index_vector_dim != 1:
        return None
    if build.shape_of(places) != [shape[one], 2]:
        return None
    if list(numbers.offset_dims) != list(range(len(shape) - 2)):
        return None
    if len(joined.operands) != 2 or not all(_is_column_of_places(column) for column in joined.operands):
        return None
    return tensor, (one, other)


def _is_column_of_places(column: ir.Value) -> bool:
    """Whether the tensor of shape [n, 1] holds 0, 1, 2, ..."""
    op = defining_op(column, _BROADCAST) or defining_op(column, "stablehlo.reshape")
    if op is None or build.shape_of(column)[1] != 1 or len(build.shape_of(op.operands[0])) != 1:
        return False
    if op.name == _BROADCAST and integers(op, "broadcast_dimensions", []) != [0]:
        return False
    return _counts_along(op.operands[0]) == 0
