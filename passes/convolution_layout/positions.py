"""Gradients of depthwise kernels, position by position, in a loop.

before:  %dk = convolution(%x, %dy), dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], batch_group_count = features
after:   for each position (i, j) of the kernel:
           %dk[i, j] = sum over images and pixels of  (slice of %x that begins at (i, j)) * %dy

Each feature has a group of its own: one image of the convolution, whose features are the images of the batch. XLA:CPU
computes all pairs of features and selects the diagonal. A loop multiplies and adds what is needed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.types import element_type
from exla_opt.ops.convolution import SHORT, Convolution
from exla_opt.ops.window_geometry import Window, padded
from exla_opt.passes.algebra.blocks import count


def is_by_position(convolution: Convolution) -> bool:
    """Whether every group has one image and one output feature, and no position between two elements is read."""
    groups = convolution.batch_groups
    return (
        groups > 1
        and convolution.groups == 1
        and convolution.image[0] == convolution.kernel[-1] == groups
        and all(window.base == 1 for window in convolution.windows)
    )


def by_position(op: ir.Operation, convolution: Convolution) -> ir.Value:
    """The result of such a convolution; built at the insertion point. Narrow floats are added in f32, as kernels do."""
    batch, *space, features = convolution.orders[0]
    *across, summed, kept = convolution.orders[1]
    turn = dict(zip([batch, *space, features], [kept, *across, summed], strict=True))
    kernel = build.transposed(op.operands[1], [turn[dim] for dim in sorted(turn)])
    image = padded(op.operands[0], space, convolution.windows)
    wide = build.wide_float() if convolution.dtype in SHORT else element_type(kernel)
    groups, positions = convolution.batch_groups, convolution.result[1:-1]
    sizes = build.shape_of(kernel)
    strides = [1] * len(sizes)
    for dim, window in zip(space, convolution.windows, strict=True):
        sizes[dim], strides[dim] = (window.size - 1) * window.dilation + 1, window.dilation

    def add(place: ir.Value, total: ir.Value) -> ir.Value:
        given, factor, at = image, kernel, place
        if convolution.dtype in SHORT:  # else XLA would widen both before the loop: see narrow-slices
            given, factor, at = stablehlo.OptimizationBarrierOp([image, kernel, place]).operation.results
        part = stablehlo.dynamic_slice(given, _starts(at, convolution), ir.DenseI64ArrayAttr.get(sizes))
        if set(strides) != {1}:
            part = stablehlo.slice(part, [0] * len(sizes), sizes, strides)
        terms = stablehlo.multiply(build.convert(part, wide), build.convert(factor, wide))
        line = build.reshaped(build.sum_along(terms, [*space, features]), [1, groups])
        return build.update_along(total, line, 0, place)

    kind = ir.RankedTensorType.get([prod(positions), groups], wide)
    total = count(build.scalar_i32(0), build.scalar_i32(prod(positions)), build.zeros(kind), add)
    result = build.reshaped(total, [1, *positions, groups])
    order = convolution.orders[2]
    return build.convert(
        build.transposed(result, [order.index(dim) for dim in range(len(order))]), element_type(op.results[0])
    )


def _starts(place: ir.Value, convolution: Convolution) -> list[ir.Value]:
    """Where the window of a position, counted row by row, begins in the padded image."""
    batch, *space, features = convolution.orders[0]
    positions = convolution.result[1:-1]
    zero = build.scalar_i32(0)
    starts = {batch: zero, features: zero}
    for number, (dim, window) in enumerate(zip(space, convolution.windows, strict=True)):
        inner = build.scalar_i32(prod(positions[number + 1 :]))
        index = stablehlo.remainder(stablehlo.divide(place, inner), build.scalar_i32(positions[number]))
        starts[dim] = stablehlo.multiply(index, build.scalar_i32(window.stride))
    return [starts[dim] for dim in sorted(starts)]


def cut(image: ir.Value, dims: Sequence[int], windows: Sequence[Window]) -> tuple[ir.Value, list[Window]]:
    """The image without the elements that negative padding drops along these dimensions, and windows without such.

    XLA:CPU's fast kernel reads beyond an image that negative padding cuts off.
    """
    shape = build.shape_of(image)
    start, limit = [0] * len(shape), list(shape)
    left = list(windows)
    for number, (dim, window) in enumerate(zip(dims, windows, strict=True)):
        first, last = window.dropped
        start[dim], limit[dim] = first, shape[dim] - last
        left[number] = replace(window, low=window.low + first * window.base, high=window.high + last * window.base)
    if left == list(windows):
        return image, left
    part: ir.Value = stablehlo.slice(image, start, limit, [1] * len(shape))
    return part, left


def read_at(
    image: ir.Value, place: Sequence[int], dims: Sequence[int], windows: Sequence[Window], shape: Sequence[int]
) -> ir.Value:
    """The elements of a padded image that one position of all windows reads. shape: of these; dims: the windows'."""
    start, limit, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for dim, at, window in zip(dims, place, windows, strict=True):
        start[dim], stride[dim] = at * window.dilation, window.stride
        limit[dim] = start[dim] + (shape[dim] - 1) * window.stride + 1
    part: ir.Value = stablehlo.slice(image, start, limit, stride)
    return part
