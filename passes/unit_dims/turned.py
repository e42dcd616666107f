"""Products that are transposed, once their dimensions of 1 are gone: written with their operands swapped."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.rewrite import clone_on
from exla_opt.ir.values import defining_op, has_discardable_attributes, splat_value
from exla_opt.ops.pointwise import STABLEHLO_POINTWISE
from exla_opt.passes.reshape_sinker.dots import is_plain, may_be_turned, swaps_sides, turned


def transpose_of_product(op: ir.Operation) -> ir.Value | None:
    """transpose(f(dot(x, y), c)) = f(dot(y, x), c), with a function of elements or none, and a number c

    Not for two plain matrices: swapped, both would be transposed, which is slow.
    """
    permutation = integers(op, "permutation", [])
    path = _path(op)
    if not path:
        return None
    *functions, dot = path
    if not may_be_turned(dot) or is_plain(dot) or not swaps_sides(dot, permutation):
        return None
    value = turned(dot)
    for function in functions[::-1]:
        value = _turned_function(function, permutation, value)
    return value


def _path(op: ir.Operation) -> list[ir.Operation]:
    """The functions of elements between an op's first operand and a dot, and the dot, all in the op's block.

    None if others read of them, for they would be computed twice, or if one has attributes of another dialect.
    """
    path: list[ir.Operation] = []
    value = op.operands[0]
    while True:
        inner = defining_op(value)
        if inner is None or inner.block != op.block or has_discardable_attributes(inner) or _is_read_twice(value):
            return []
        path.append(inner)
        if inner.name == "stablehlo.dot_general":
            return path
        changing = [operand for operand in inner.operands if splat_value(operand) is None]
        if inner.name not in STABLEHLO_POINTWISE or len(changing) != 1:
            return []
        value = changing[0]


def _is_read_twice(value: ir.Value) -> bool:
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is not None


def _turned_function(op: ir.Operation, permutation: Sequence[int], value: ir.Value) -> ir.Value:
    """A function of elements of `value` instead of the one operand that is no number."""
    operands = []
    for operand in op.operands:
        number = splat_value(operand)
        shape = build.shape_of(operand)
        if number is not None and shape:
            operand = build.splat(
                build.with_shape(build.tensor_of(operand), [shape[dim] for dim in permutation]), number
            )
        operands.append(value if number is None else operand)
    shape = build.shape_of(op.results[0])
    return clone_on(op, operands, [shape[dim] for dim in permutation], {})
