"""Convolutions that read their batch merged with other dimensions, and the same with the batch first in these.

reassociate: whether sums may be reordered: in the gradient of a filter, the merged dimension is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.reassociation import reassociation_of
from exla_opt.ir.rewrite import apply_patterns, clone_on
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes, plain_defining_op
from exla_opt.ir.walk import walk_functions

_CONVOLUTION, _RESHAPE, _TRANSPOSE = "stablehlo.convolution", "stablehlo.reshape", "stablehlo.transpose"


@dataclass(frozen=True, slots=True)
class _Turned:
    """A transpose in which a dimension of a reshape of it merges several, the last of which is the source's first.

    places: of what is merged, in the result of the transpose. sizes: of these.
    """

    op: ir.Operation
    places: list[int]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class _Merged:
    """A dimension in which a convolution reads the batch merged with other dimensions, the batch last.

    turned: where each operand with that dimension comes from. result: its place in the result; None if contracted.
    """

    turned: dict[int, _Turned]
    result: int | None


def reads_batch_last(op: ir.Operation, threshold: int, reassociate: bool, types: Types) -> bool:
    """Whether an op is a convolution of tensors over the threshold that reads its batch behind other parts."""
    return _merged(op, threshold, reassociate, types) is not None


def put_batches_first(module: ir.Module, threshold: int, reassociate: bool) -> bool:
    """Put the batch first in what such convolutions read, and their results back; return whether there were any."""
    types = Types()
    changed = False
    for op in list(walk_functions(module.operation)):
        merged = _merged(op, threshold, reassociate, types)
        if merged is not None:
            _put_batch_first(op, merged)
            changed = True
    if changed:
        apply_patterns(module, {_TRANSPOSE: [_transpose_without_units]})
    return changed


def _merged(op: ir.Operation, threshold: int, reassociate: bool, types: Types) -> _Merged | None:
    """The dimension that a convolution reads with the batch last; None for any other op."""
    if op.name != _CONVOLUTION or has_discardable_attributes(op):
        return None
    if all(types.of(value).bytes <= threshold for value in (*op.operands, op.results[0])):
        return None
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, kernel = op.operands
    images = _turned(image, numbers.input_batch_dimension)
    if images is not None and integer(op, "batch_group_count", 1) == 1:
        return _Merged({0: images}, numbers.output_batch_dimension)
    if not reassociate or integer(op, "feature_group_count", 1) != 1:
        return None
    features = _turned(image, numbers.input_feature_dimension)
    inputs = _turned(kernel, numbers.kernel_input_feature_dimension)
    if features is None or inputs is None or features.sizes != inputs.sizes:
        return None
    return _Merged({0: features, 1: inputs}, None)


def _turned(value: ir.Value, dim: int) -> _Turned | None:
    """The transpose whose source's first dimension is the last that a dimension of a value merges; None if it is not.

    Only reshapes are between both.
    """
    shape = build.shape_of(value)
    source = plain_defining_op(value, _RESHAPE)
    while source is not None and source.name == _RESHAPE:
        value = source.operands[0]
        source = plain_defining_op(value, _RESHAPE) or plain_defining_op(value, _TRANSPOSE)
    if source is None:
        return None
    before = build.shape_of(value)
    groups = reassociation_of(before, shape) or []
    group = next((each for each in groups if dim in each.after), None)
    if group is None or any(shape[other] != 1 for other in group.after if other != dim):
        return None
    places = [place for place in group.before if before[place] != 1]
    if len(places) < 2 or integers(source, "permutation", [])[places[-1]] != 0:
        return None
    return _Turned(source, places, [before[place] for place in places])


def _put_batch_first(op: ir.Operation, merged: _Merged) -> None:
    """Replace a convolution by one that reads, and computes, the merged dimension with the batch first."""
    with ir.InsertionPoint(op), op.location:
        operands = list(op.operands)
        for place, turned in merged.turned.items():
            operands[place] = build.reshaped(_with_batch_first(turned), build.shape_of(operands[place]))
        value = clone_on(op, operands, build.shape_of(op.results[0]), {})
        if merged.result is not None:
            *rest, batch = merged.turned[0].sizes
            value = _swapped(value, merged.result, [batch], rest)
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _with_batch_first(turned: _Turned) -> ir.Value:
    order = integers(turned.op, "permutation", [])
    *rest, batch = (order[place] for place in turned.places)
    for place, dim in zip(turned.places, [batch, *rest], strict=True):
        order[place] = dim
    return stablehlo.transpose(turned.op.operands[0], ir.DenseI64ArrayAttr.get(order))


def _swapped(value: ir.Value, dim: int, first: Sequence[int], second: Sequence[int]) -> ir.Value:
    """The tensor with a dimension that merges the sizes `first`, `second` in the order `second`, `first` instead."""
    shape = build.shape_of(value)
    # Without sizes of 1, so that a reshape behind it cancels.
    before, after = ([size for size in part if size != 1] for part in (shape[:dim], shape[dim + 1 :]))
    split = build.reshaped(value, [*before, *first, *second, *after])
    start, middle = len(before), len(before) + len(first)
    end = middle + len(second)
    order = [*range(start), *range(middle, end), *range(start, middle), *range(end, end + len(after))]
    return build.reshaped(stablehlo.transpose(split, ir.DenseI64ArrayAttr.get(order)), shape)


def _transpose_without_units(op: ir.Operation) -> ir.Value | None:
    """transpose(x) with sizes of 1 = reshape(transpose(reshape(x))) without: transposes between such reshapes merge"""
    shape = build.shape_of(op.operands[0])
    kept = [dim for dim, size in enumerate(shape) if size != 1]
    if len(kept) == len(shape):
        return None
    order = [kept.index(dim) for dim in integers(op, "permutation", []) if dim in kept]
    narrow = build.reshaped(op.operands[0], [shape[dim] for dim in kept])
    turned = stablehlo.transpose(narrow, ir.DenseI64ArrayAttr.get(order))
    return build.reshaped(turned, build.shape_of(op.results[0]))
