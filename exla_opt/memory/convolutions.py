"""Convolutions as XLA:CPU runs them: in one dimension order outside of loops, and in any order inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer, integers
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ops.window_geometry import exceed_image, has_reversed_kernel, has_reversed_windows, windows_of

from .block import Operation
from .builder import Builder
from .machine import Machine
from .products import add_wide
from .widening import Append


def convolve_as_it_is(machine: Machine, builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A convolution in its own dimension order, for which XLA has a fast kernel in one order only."""
    if machine.is_written and is_slow_inside(op, builder.types):
        made = replace(made, seconds=_operations(op, builder.types) / machine.flops_of_slow_convolutions)
    add_wide(builder, made, op.results[0])


def with_all_pairs(append: Append, builder: Builder, op: ir.Operation, made: Operation) -> None:
    """A convolution whose groups have one image and one output feature: XLA:CPU convolves all images with all kernels.

    It then masks all but the diagonal, in a second buffer if the result has another dimension order than its kernel's.
    Only finished programs have it (`Machine.is_written`): convolution-layout writes most of them in another form.
    """
    image, kernel, result = _orders(op)
    groups = integer(op, "batch_group_count", 1)
    lengths = [builder.types.of(op.operands[side]).shape[dim] for side, dim in ((0, image[0]), (1, kernel[-1]))]
    if lengths == [groups, groups]:
        pairs = groups * builder.types.of(op.results[0]).bytes
        made = replace(made, scratch=made.scratch + pairs * (1 if result == sorted(result) else 2))
    append(builder, op, made)


def is_exchanged(op: ir.Operation, types: Types) -> bool:
    """Whether XLA:CPU convolves a reversed copy of the kernel with the image, as the kernel has more positions."""
    image, kernel, result = _orders(op)
    grouped = any(integer(op, name, 1) > 1 for name in ("feature_group_count", "batch_group_count"))
    if grouped or has_reversed_windows(op):
        return False
    lengths = [
        tuple(types.of(value).shape[dim] for dim in dims)
        for value, dims in ((op.operands[0], image[1:-1]), (op.operands[1], kernel[:-2]), (op.results[0], result[1:-1]))
    ]
    return exceed_image(windows_of(op, lengths[1]), lengths[0], lengths[2])


def convolve_exchanged(
    machine: Machine, is_function: bool, builder: Builder, op: ir.Operation, made: Operation
) -> None:
    """Such a convolution, for which XLA has no fast kernel.

    Only finished programs have it (`Machine.is_written`): convolution-layout writes most of them in another form. The
    kernel skips the zeros between an image's elements: 3 to 4 GFLOP/s of other numbers. is_function: whether the op is
    in a function, where XLA has brought images and result into its own dimension order before, and not in a loop.
    """
    image, kernel = made.operands
    turned = _reversed_copy(builder, op, kernel)
    lhs, _, out = _orders(op)
    if is_function and not is_in_order(lhs, builder.types.of(op.operands[0]).shape):
        image = builder.transposed(op.results[0], op.operands[0], lhs)
    pairs = zip(made.operands, (image, turned), strict=True)
    narrow = made.narrow | {new for old, new in pairs if old in made.narrow}
    seconds = (
        _operations(op, builder.types) / prod(integers(op, "lhs_dilation", [1])) / machine.flops_of_slow_convolutions
    )
    made = replace(made, operands=(image, turned), narrow=narrow, seconds=seconds)
    if is_function and not is_in_order(out, builder.types.of(op.results[0]).shape):
        _add_turned(builder, op, made, out)
    else:
        add_wide(builder, made, op.results[0])


def _add_turned(builder: Builder, op: ir.Operation, made: Operation, out: Sequence[int]) -> None:
    """A convolution whose result XLA writes in its own dimension order, and then transposes. out: that order."""
    [result] = made.results
    shape = tuple(builder.types.of(op.results[0]).shape[dim] for dim in out)
    own = builder.fresh(op.results[0], shape, result)
    narrow = made.narrow | {own} if result in made.narrow else made.narrow
    add_wide(builder, replace(made, results=(own,), shared=(len(out) - 1,), narrow=narrow), op.results[0])
    builder.add_plain("transpose", (own,), (result,))


def _reversed_copy(builder: Builder, op: ir.Operation, kernel: int) -> int:
    """The kernel reversed in all dimensions of its window; XLA joins that with a reversal by the program."""
    source = defining_op(op.operands[1], "stablehlo.reverse")
    if source is not None:
        kernel = builder.of(source.operands[0])
    places = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]).kernel_spatial_dimensions
    return kernel if has_reversed_kernel(op, places) else builder.reversed(op.results[0], kernel)


def is_slow_inside(op: ir.Operation, types: Types) -> bool:
    """Whether an op is a convolution that XLA:CPU runs on its slow kernel in a loop.

    It does so in any dimension order but one, unless the convolution is a product of matrices.
    """
    if op.name != "stablehlo.convolution":
        return False
    orders = zip(_orders(op), (*op.operands, op.results[0]), strict=True)
    return not all(is_in_order(order, types.of(value).shape) for order, value in orders) and not is_dot(op, types)


def _operations(op: ir.Operation, types: Types) -> float:
    """Twice the multiplications of a convolution: a result's terms are one output feature's part of the kernel."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    kernel = types.of(op.operands[1]).shape
    terms = prod(kernel) // max(kernel[numbers.kernel_output_feature_dimension], 1)
    return 2.0 * prod(types.of(op.results[0]).shape) * terms


def _orders(op: ir.Operation) -> tuple[list[int], list[int], list[int]]:
    """The dimensions of image, kernel and result in the order in which XLA convolves."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image = [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension]
    kernel = [
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
    ]
    result = [numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension]
    return image, kernel, result


def convolve(builder: Builder, op: ir.Operation, made: Operation) -> None:
    """XLA convolves in one dimension order only, and copies operands in other orders."""
    lhs, rhs, out = _orders(op)
    operands = tuple(
        number if is_in_order(order, builder.types.of(value).shape) else builder.transposed(op.results[0], value, order)
        for number, value, order in zip(made.operands, op.operands, (lhs, rhs), strict=True)
    )
    narrow = {new for old, new in zip(made.operands, operands, strict=True) if old in made.narrow}
    [result] = made.results
    if is_dot(op, builder.types):
        builder.block.merged.add(result)
    if is_in_order(out, builder.types.of(op.results[0]).shape):
        add_wide(builder, replace(made, operands=operands, narrow=made.narrow | narrow), op.results[0])
        return
    narrow |= {result} if result in made.narrow else set()
    _add_turned(builder, op, replace(made, operands=operands, narrow=frozenset(narrow)), out)


def is_in_order(order: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether dimensions are in this order, not counting those of one element."""
    longer = [dim for dim in order if shape[dim] != 1]
    return longer == sorted(longer)


def is_dot(op: ir.Operation, types: Types) -> bool:
    """Whether a convolution reads one position at a time: XLA turns it into a product of matrices."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    kernel = types.of(op.operands[1]).shape
    spans = prod(kernel[dim] for dim in numbers.kernel_spatial_dimensions)
    same = all(set(integers(op, name, [1])) == {1} for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    return spans == 1 and same and integer(op, "feature_group_count", 1) == integer(op, "batch_group_count", 1) == 1
