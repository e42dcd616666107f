"""Sorts of which only the first elements are read."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import boolean, integer, integers
from exla_opt.ir.types import element_type, float_bits
from exla_opt.ir.values import defining_op, has_discardable_attributes, plain_defining_op
from exla_opt.ir.walk import operations_of
from exla_opt.ops.reducers import body_of

_SORT, _SLICE, _IOTA = "stablehlo.sort", "stablehlo.slice", "stablehlo.iota"
# For a larger fraction, XLA sorts for a top_k as well.
_PART = 4


def slice_of_sort(op: ir.Operation) -> ir.Value | None:
    """slice(sort(x, places), 0:k) = top_k(x, k), where the sort is stable, along the last dimension, high to low"""
    sort = plain_defining_op(op.operands[0], _SORT)
    if sort is None or not _is_from_high_to_low(sort) or not _counts_last(sort):
        return None
    count = _first_elements(op)
    if count is None or any(_first_elements(use.owner.operation) != count for r in sort.results for use in r.uses):
        return None
    kind = build.tensor_of(sort.operands[0])
    shape = [*list(kind.shape)[:-1], count]
    made = ir.Operation.create(
        "chlo.top_k",
        results=[build.with_shape(kind, shape), ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(32))],
        operands=[sort.operands[0]],
        attributes={"k": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)},
        loc=sort.location,
    )
    value = made.results[list(sort.results).index(op.operands[0])]
    return build.convert(value, element_type(op.results[0]))


def _first_elements(op: ir.Operation) -> int | None:
    """The number of elements of each row that a slice takes, if these are the first ones, few, and of all rows."""
    if op.name != _SLICE or has_discardable_attributes(op):
        return None
    shape, kept = build.shape_of(op.operands[0]), build.shape_of(op.results[0])
    if any(integers(op, "start_indices", [])) or integers(op, "strides", [1])[-1] != 1 or shape[:-1] != kept[:-1]:
        return None
    return kept[-1] if 0 < _PART * kept[-1] <= shape[-1] else None


def _is_from_high_to_low(sort: ir.Operation) -> bool:
    """Whether the sort keeps the order of equal elements and compares those of its first operand, as in top_k."""
    last = len(build.shape_of(sort.operands[0])) - 1
    if not boolean(sort, "is_stable") or integer(sort, "dimension", -1) not in (-1, last):
        return False
    kind, block = element_type(sort.operands[0]), body_of(sort)
    # XLA cannot compile a top_k of integers of less than a byte.
    if not (float_bits(kind) or (isinstance(kind, ir.IntegerType) and kind.width >= 8)):
        return False
    first, *others = operations_of(block)
    if first.name != "stablehlo.compare" or len(others) != 1 or others[0].operands[0] != first.results[0]:
        return False
    direction = stablehlo.ComparisonDirectionAttr(first.attributes["comparison_direction"]).value
    if direction != "GT" or list(first.operands) != list(block.arguments)[:2]:
        return False
    how = "NOTYPE"
    if "compare_type" in first.attributes:
        how = stablehlo.ComparisonTypeAttr(first.attributes["compare_type"]).value
    if isinstance(kind, ir.IntegerType):
        return how in ("NOTYPE", "UNSIGNED" if kind.is_unsigned else "SIGNED")
    # Without a total order a NaN is neither before nor after another number, and the sort may leave it anywhere.
    return how == "TOTALORDER"


def _counts_last(sort: ir.Operation) -> bool:
    """Whether the only other operand of the sort is the elements' indices in their rows."""
    others = list(sort.operands)[1:]
    if not others:
        return True
    count = defining_op(others[0], _IOTA)
    last = len(build.shape_of(sort.operands[0])) - 1
    return len(others) == 1 and count is not None and integer(count, "iota_dimension", -1) == last
