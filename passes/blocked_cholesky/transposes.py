"""Reads a matrix instead of its transpose, which then need not exist."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import boolean, integers
from exla_opt.ir.values import defining_op, has_discardable_attributes

# The other way to read a real matrix: plain or transposed.
_OTHER_WAY = {"NO_TRANSPOSE": "TRANSPOSE", "TRANSPOSE": "NO_TRANSPOSE", "ADJOINT": "NO_TRANSPOSE"}


def transpose_of(value: ir.Value) -> ir.Value | None:
    """The matrix of which the value is the transpose, possibly with dimensions of one element before the last two."""
    op = defining_op(value, "stablehlo.transpose")
    if op is None or has_discardable_attributes(op):
        return None
    rank = len(build.shape_of(value))
    return op.operands[0] if integers(op, "permutation", [])[-2:] == [rank - 1, rank - 2] else None


def read_untransposed(value: ir.Value, matrix: ir.Value) -> None:
    """Let products, triangular solves and transposes of `value`, the transpose of a square real `matrix`, read that.

    All other readers of `value`, such as the function's return, are unchanged.
    """
    readers = [use.owner.operation for use in value.uses]
    for op in readers:
        if op.name == "stablehlo.triangular_solve" and op.operands[0] == value:
            other_way = _OTHER_WAY.get(stablehlo.TransposeAttr(op.attributes["transpose_a"]).value)
            if other_way is not None:
                _solve_with(op, matrix, other_way)
        elif op.name == "stablehlo.dot_general":
            with op.location:
                _multiply_with(op, value, matrix)
        elif op.name == "stablehlo.transpose" and transpose_of(op.results[0]) == value:
            op.results[0].replace_all_uses_with(matrix)
            op.erase()


def _solve_with(op: ir.Operation, matrix: ir.Value, transpose: str) -> None:
    op.operands[0] = matrix
    with op.location:
        op.attributes["lower"] = ir.BoolAttr.get(not boolean(op, "lower"))
        op.attributes["transpose_a"] = stablehlo.TransposeAttr.get(transpose)


def _multiply_with(op: ir.Operation, value: ir.Value, matrix: ir.Value) -> None:
    """Use the matrix in a product of `value`, along the other dimension, if it contracts one dimension."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    left, right = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
    if numbers.lhs_batching_dimensions or len(left) != 1:
        return
    for side, contracted in enumerate((left, right)):
        if op.operands[side] == value:
            op.operands[side] = matrix
            contracted[0] = 1 - contracted[0]
    op.attributes["dot_dimension_numbers"] = stablehlo.DotDimensionNumbers.get([], [], left, right)
