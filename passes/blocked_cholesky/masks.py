"""Recognises selections of a factor's triangle, and drops them if the rest is zero: they change nothing."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integer
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.comparisons import direction_of

_SHIFTS = {"stablehlo.add": 1, "stablehlo.subtract": -1}
# The direction of a comparison after its operands are swapped.
_FLIPPED = {"GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT"}


def is_masked(matrix: ir.Value, lower: bool) -> bool:
    """Whether all readers of the matrix select one triangle, with zeros elsewhere."""
    return all(_keeps_triangle(use.owner.operation, matrix, lower) for use in matrix.uses)


def drop_masks(matrix: ir.Value, lower: bool) -> None:
    """Let readers that select one triangle of a matrix, whose other triangle is zero, read the matrix."""
    redundant = [use.owner.operation for use in matrix.uses if _keeps_triangle(use.owner.operation, matrix, lower)]
    while redundant:
        op = redundant.pop()
        readers = [use.owner.operation for use in op.results[0].uses]
        op.results[0].replace_all_uses_with(matrix)
        op.erase()
        redundant += [reader for reader in _different(readers) if _keeps_triangle(reader, matrix, lower)]


def _different(ops: list[ir.Operation]) -> list[ir.Operation]:
    found: list[ir.Operation] = []
    for op in ops:
        if not any(op == other for other in found):
            found.append(op)
    return found


def _keeps_triangle(op: ir.Operation, matrix: ir.Value, lower: bool) -> bool:
    """Whether the op selects the triangle of the matrix, with zeros elsewhere."""
    if op.name != "stablehlo.select" or op.operands[1] != matrix or has_discardable_attributes(op):
        return False
    # Zeros of integers would do as well, but a factor has none.
    zero = splat_value(op.operands[2])
    if zero != 0 or str(zero).startswith("-") or not build.shape_of(op.operands[0]):
        return False
    return _covers(op.operands[0], lower)


def _covers(mask: ir.Value, lower: bool) -> bool:
    """Whether a mask is true in the triangle, including the diagonal: where row - column >= 0, or <= 0."""
    test = defining_op(mask, "stablehlo.compare")
    if test is None:
        return False
    left, right = (_place(value) for value in test.operands)
    if left is None or right is None or {left[0], right[0]} != {0, 1}:
        return False
    direction = direction_of(test)
    if left[0] == 1:  # column + a < row + b
        left, right, direction = right, left, _FLIPPED.get(direction, direction)
    shift = left[1] - right[1]  # row - column + shift is compared with 0
    return (direction, shift) in ((("GE", 0), ("GT", 1)) if lower else (("LE", 0), ("LT", -1)))


def _place(value: ir.Value) -> tuple[int, int] | None:
    """(dim, shift) of a 2-d tensor whose elements are their index along dim plus a shift."""
    if str(build.tensor_of(value).element_type) not in ("i32", "i64"):  # others may not hold all numbers
        return None
    shift = 0
    while (op := defining_op(value)) is not None and op.name in _SHIFTS:
        number = splat_value(op.operands[1])
        if not isinstance(number, int):
            return None
        shift += _SHIFTS[op.name] * number
        value = op.operands[0]
    if op is None:
        return None
    if op.name == "stablehlo.iota":
        return integer(op, "iota_dimension"), shift
    line = defining_op(op.operands[0], "stablehlo.iota") if op.name == "stablehlo.broadcast_in_dim" else None
    if line is None or len(build.shape_of(line.results[0])) != 1:
        return None
    return next(iter(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))), shift
