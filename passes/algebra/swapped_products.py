"""A product of matrices with its operands swapped: the transpose of the product.

dot_general %a, %b, contracting_dims = [0] x [1] : (KxM, NxK) -> MxN
dot_general %b, %a, contracting_dims = [1] x [0] : (NxK, KxM) -> NxM
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import has_discardable_attributes

_PRECISION, _ALGORITHM, _DIMENSIONS = "precision_config", "algorithm", "dot_dimension_numbers"


def may_swap(op: ir.Operation) -> bool:
    """Whether operands may be swapped: not if a sharding, or an algorithm with separate types, refers to them."""
    return not has_discardable_attributes(op) and _ALGORITHM not in op.attributes


def is_transposed_twice(op: ir.Operation) -> bool:
    """Whether both operands are transposed, from XLA:CPU's view: first KxM, then NxK, and neither is a vector."""
    left, right = _sides(op)
    return _is_before(left.summed, left.own) and _is_before(right.own, right.summed)


def is_plain(op: ir.Operation) -> bool:
    """Whether no operand is transposed: first MxK, then KxN, and neither is a vector."""
    left, right = _sides(op)
    return _is_before(left.own, left.summed) and _is_before(right.summed, right.own)


def numbers_of(op: ir.Operation) -> stablehlo.DotDimensionNumbers:
    """The numbers of a product's batching and contracting dimensions."""
    return stablehlo.DotDimensionNumbers(op.attributes[_DIMENSIONS])


def order_of_swapped(op: ir.Operation) -> list[int]:
    """The dimensions of a product in the order of the swapped one: batch, those of the right operand, of the left."""
    numbers = numbers_of(op)
    batch, rank = len(numbers.lhs_batching_dimensions), len(build.shape_of(op.results[0]))
    middle = len(build.shape_of(op.operands[0])) - len(numbers.lhs_contracting_dimensions)
    return [*range(batch), *range(middle, rank), *range(batch, middle)]


def swapped(op: ir.Operation) -> ir.Value:
    """The swapped product, which is added at the insertion point."""
    numbers, shape = numbers_of(op), build.shape_of(op.results[0])
    left, right = op.operands
    attributes: dict[str, ir.Attribute] = {
        _DIMENSIONS: stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=list(numbers.rhs_batching_dimensions),
            rhs_batching_dimensions=list(numbers.lhs_batching_dimensions),
            lhs_contracting_dimensions=list(numbers.rhs_contracting_dimensions),
            rhs_contracting_dimensions=list(numbers.lhs_contracting_dimensions),
        )
    }
    if _PRECISION in op.attributes:
        attributes[_PRECISION] = ir.ArrayAttr.get(list(ir.ArrayAttr(op.attributes[_PRECISION]))[::-1])
    kind = build.with_shape(build.tensor_of(op.results[0]), [shape[dim] for dim in order_of_swapped(op)])
    result: ir.Value = ir.Operation.create("stablehlo.dot_general", [kind], [right, left], attributes).results[0]
    return result


@dataclass(frozen=True, slots=True)
class _Side:
    """The dimensions of an operand, except those of size 1. own: those of no other. summed: the contracted ones."""

    own: list[int]
    summed: list[int]


def _sides(op: ir.Operation) -> tuple[_Side, _Side]:
    numbers = numbers_of(op)
    dims = (
        (numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
        (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
    )
    left, right = (
        _side(build.shape_of(value), list(batch), list(summed))
        for value, (batch, summed) in zip(op.operands, dims, strict=True)
    )
    return left, right


def _side(shape: Sequence[int], batch: Sequence[int], summed: Sequence[int]) -> _Side:
    longer = [dim for dim, size in enumerate(shape) if size != 1 and dim not in batch]
    return _Side([dim for dim in longer if dim not in summed], [dim for dim in longer if dim in summed])


def _is_before(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether there are dimensions of both kinds, all of the first before all of the second."""
    return bool(first and second) and max(first) < min(second)
