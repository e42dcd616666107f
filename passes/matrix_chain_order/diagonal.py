"""The diagonal of a matrix, as JAX writes it: a mask under a sum, or a gather at (0, 0), (1, 1), ..."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.analysis.op_rules.attributes import integer, integers, is_splat
from exla_opt.ir import build


def maker(value: ir.Value, name: str) -> ir.Operation | None:
    """The op of this name that makes the value; None when another does."""
    owner = value.owner
    op = None if isinstance(owner, ir.Block) else owner.operation
    return op if op is not None and op.name == f"stablehlo.{name}" else None


def splat_of(value: ir.Value) -> float | None:
    """The number that the tensor is everywhere: a constant, repeated or not. None for all others."""
    while (spread := maker(value, "broadcast_in_dim")) is not None:
        value = spread.operands[0]
    op = maker(value, "constant")
    if op is None or isinstance(build.tensor_of(value).element_type, ir.ComplexType) or not is_splat(op):
        return None
    number = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return float(number.value) if isinstance(number, (ir.FloatAttr, ir.IntegerAttr)) else None


def masked_diagonal(value: ir.Value) -> tuple[ir.Value, tuple[int, int]] | None:
    """The tensor of which only the diagonal of two dimensions is kept, zero elsewhere, and these dimensions."""
    op = maker(value, "select")
    if op is None or splat_of(op.operands[2]) != 0:
        return None
    equal = maker(op.operands[0], "compare")
    if equal is None or stablehlo.ComparisonDirectionAttr(equal.attributes["comparison_direction"]).value != "EQ":
        return None
    dims = [_counts_along(operand) for operand in equal.operands]
    if None in dims or dims[0] == dims[1]:
        return None
    shape = build.shape_of(value)
    one, other = (dim for dim in dims if dim is not None)
    return (op.operands[1], (one, other)) if shape[one] == shape[other] else None


def _counts_along(value: ir.Value) -> int | None:
    """The dimension along which an integer tensor counts 0, 1, 2, ...; None when it does not."""
    while True:
        if (op := maker(value, "add")) is not None and splat_of(op.operands[1]) == 0:
            value = op.operands[0]
        elif (op := maker(value, "select")) is not None and _is_negative(op.operands[0], op.operands[2]):
            value = op.operands[2]
        elif (op := maker(value, "convert")) is not None and isinstance(_element(op.operands[0]), ir.IntegerType):
            value = op.operands[0]
        elif (op := maker(value, "iota")) is not None:
            return integer(op, "iota_dimension") if isinstance(_element(value), ir.IntegerType) else None
        else:
            return None


def _element(value: ir.Value) -> ir.Type:
    return build.tensor_of(value).element_type


def _is_negative(mask: ir.Value, value: ir.Value) -> bool:
    """Whether the mask asks where a counting tensor is below zero, which is nowhere."""
    op = maker(mask, "compare")
    if op is None or op.operands[0] != value or splat_of(op.operands[1]) != 0:
        return False
    return bool(stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value == "LT")


def diagonal_of(op: ir.Operation) -> ir.Value | None:
    """The square matrix whose diagonal a gather reads; None when it reads anything else."""
    if op.name != "stablehlo.gather":
        return None
    matrix, places = op.operands
    shape = build.shape_of(matrix)
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    whole = list(numbers.collapsed_slice_dims) == [0, 1] and sorted(numbers.start_index_map) == [0, 1]
    if len(shape) != 2 or shape[0] != shape[1] or not whole or integers(op, "slice_sizes", []) != [1, 1]:
        return None
    joined = maker(places, "concatenate")
    if joined is None or build.shape_of(places) != [shape[0], 2] or numbers.index_vector_dim != 1:
        return None
    columns = [maker(column, "broadcast_in_dim") or maker(column, "reshape") for column in joined.operands]
    if len(columns) != 2 or any(
        column is None or len(build.shape_of(column.operands[0])) != 1 or _counts_along(column.operands[0]) != 0
        for column in columns
    ):
        return None
    return matrix
