"""Convolutions on XLA:GPU: a call of cuDNN, and copies of the operands that cuDNN cannot read directly.

Found in compiled programs: cuDNN needs even padding, no gaps between the elements that it reads, and one dimension
order for all tensors: channels last, but before the spatial dimensions if there are three or for float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.types import Types, element_type, float_bits
from exla_opt.ir.values import defining_op
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.ops.window_geometry import Window, windows_of

from ..block import Operation, Shape
from ..builder import Builder
from ..convolutions import is_in_order
from .layouts import without_ones

# Convolutions of up to this many spatial dimensions, with floats of fewer bits than this, run with channels last.
_CHANNELS_LAST, _WIDE_BITS = 2, 64
# Narrow floats are read as float32 if the result is float32.
_FLOAT_BITS = 32


def make_convolution(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """cuDNN computes convolutions and both gradients; operands that it cannot read directly are rewritten."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, weights, found = (builder.types.of(value).shape for value in (*op.operands, op.results[0]))
    spatial = list(numbers.input_spatial_dimensions)
    windows = windows_of(op, [weights[dim] for dim in numbers.kernel_spatial_dimensions])
    has_gaps = any(window.base > 1 for window in windows)
    is_uneven = any(window.low != max(window.high, 0) for window in windows)
    is_reversed = _is_reversed(op)
    is_of_kernel = _is_gradient_of_kernel(op, builder.types)
    orders = convolution_orders(op, builder.types)
    lhs, rhs = (_ordered(builder, op, side, orders[side]) for side in (0, 1))
    if _is_widened(op):
        lhs, rhs = (_widened(builder, op, side, number) for side, number in enumerate((lhs, rhs)))
    padded = list(image)
    for dim, window in zip(spatial, windows, strict=True):
        padded[dim] = (image[dim] - 1) * window.base + 1 + window.low + window.high
    origin = op.results[0]
    if is_of_kernel and has_gaps:
        lhs = builder.padded(lhs, origin, tuple(padded) if is_uneven else image)
        rhs = builder.padded(rhs, origin, weights)
    elif is_of_kernel:
        if any(max(window.high, 0) > window.low for window in windows):
            lhs = builder.padded(lhs, origin, tuple(padded))
    elif (has_gaps and not is_reversed) or (is_uneven and not has_gaps):
        lhs = builder.padded(lhs, origin, tuple(padded))
    features = image[numbers.input_feature_dimension]
    is_depthwise = integer(op, "feature_group_count", 1) == features > 1
    is_bare = is_of_kernel or is_reversed or is_depthwise
    made = replace(made, operands=(lhs, rhs), order=without_ones(orders[2], found), is_bare=is_bare)
    whole = _padded_result(op, windows, image, found) if has_gaps and is_reversed else found
    if whole == found:
        builder.add(made)
        return
    own = builder.fresh(origin, whole, made.results[0])
    builder.add(replace(made, results=(own,)))
    builder.add_plain("slice", (own,), made.results)


def _is_reversed(op: ir.Operation) -> bool:
    """Whether the weights are reversed in the same block, as in the gradient of a convolution by its image."""
    reverse = defining_op(op.operands[1], "stablehlo.reverse")
    return reverse is not None and reverse.block == op.block


def _is_gradient_of_kernel(op: ir.Operation, types: Types) -> bool:
    """Whether the windows are larger than the result, as in the gradient of a convolution by its kernel."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    kernel, found = types.of(op.operands[1]).shape, types.of(op.results[0]).shape
    windows = prod(kernel[dim] for dim in numbers.kernel_spatial_dimensions)
    if set(integers(op, "window_strides", [1])) != {1}:
        return False
    return windows > prod(found[dim] for dim in numbers.output_spatial_dimensions)


def _padded_result(op: ir.Operation, windows: Sequence[Window], image: Shape, found: Shape) -> Shape:
    """The shape of the gradient of a padded image, from which the padding is removed afterwards."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    whole = list(found)
    for dim, window in zip(numbers.input_spatial_dimensions, windows, strict=True):
        low = window.reach - 1 - window.low
        high = (image[dim] - 1) * window.base + window.reach - found[dim] - low
        if max(high, 0) != low:
            whole[dim] += low + max(high, 0)
    return tuple(whole)


def convolution_orders(op: ir.Operation, types: Types) -> tuple[list[int], list[int], list[int]]:
    """The dimensions of both operands and of the result in cuDNN's order, outermost first."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    lhs = (numbers.input_batch_dimension, numbers.input_feature_dimension)
    rhs = (numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension)
    out = (numbers.output_batch_dimension, numbers.output_feature_dimension)
    if _is_gradient_of_kernel(op, types):
        lhs, rhs, out = lhs[::-1], rhs[::-1], out[::-1]
    elif _is_reversed(op):
        rhs = rhs[::-1]
    spatial = (
        numbers.input_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        numbers.output_spatial_dimensions,
    )
    is_wide = float_bits(element_type(op.operands[0])) == _WIDE_BITS
    is_last = len(spatial[0]) <= _CHANNELS_LAST and not is_wide
    found = [
        [first, *dims, second] if is_last else [first, second, *dims]
        for (first, second), dims in zip((lhs, rhs, out), spatial, strict=True)
    ]
    return found[0], found[1], found[2]


def _ordered(builder: Builder, op: ir.Operation, side: int, order: Sequence[int]) -> int:
    """The number of an operand with its dimensions in an order: copied only if no kernel can write it so."""
    value, number = op.operands[side], builder.of(op.operands[side])
    if is_in_order(order, builder.types.of(value).shape):
        return number
    moved = defining_op(value, "stablehlo.transpose")
    if moved is not None:
        permutation = integers(moved, "permutation", [])
        inner = moved.operands[0]
        if is_in_order([permutation[dim] for dim in order], builder.types.of(inner).shape):
            return builder.of(inner)
    if isinstance(value.owner, ir.Block) and value.owner == op.block:
        return builder.transposed(op.results[0], value, order)
    return number


def _is_widened(op: ir.Operation) -> bool:
    """Whether narrow floats are read as float32: not float16 whose result becomes float16 again."""
    kind, found = element_type(op.operands[0]), element_type(op.results[0])
    if not 0 < float_bits(kind) < float_bits(found) == _FLOAT_BITS:
        return False
    readers = [use.owner.operation for use in op.results[0].uses]
    again = all(reader.name == "stablehlo.convert" and element_type(reader.results[0]) == kind for reader in readers)
    return not (str(kind) == "f16" and again)


def _widened(builder: Builder, op: ir.Operation, side: int, number: int) -> int:
    """The number of an operand as float32, possibly the tensor from which it was rounded."""
    value = op.operands[side]
    rounded = defining_op(value, "stablehlo.convert")
    if number == builder.of(value) and rounded is not None:
        [source] = rounded.operands
        if float_bits(element_type(source)) == _FLOAT_BITS:
            return builder.of(source)
    return builder.widened(number, op.results[0])


def undoes_order(op: ir.Operation, types: Types) -> bool:
    """Whether a transpose's result has the order in which cuDNN wrote its operand, so that it is a view."""
    if op.name != "stablehlo.transpose" or any(use.owner.operation.name == "func.return" for use in op.results[0].uses):
        return False
    return is_written_in(op.operands[0], integers(op, "permutation", []), types)


def is_written_in(value: ir.Value, order: Sequence[int], types: Types) -> bool:
    """Whether cuDNN, or kernels reading cuDNN's results, wrote a tensor in a dimension order other than its own."""
    while (made := defining_op(value)) is not None:
        if made.name == "stablehlo.convolution":
            own = convolution_orders(made, types)[2]
            return not is_in_order(own, types.of(value).shape) and own == list(order)
        if Trait.POINTWISE not in traits_of(made.name) or not len(made.operands):
            return False
        value = made.operands[0]
    return False
