"""Ops with windows: only windows that do not overlap can be cut, for each reads its own elements."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .attributes import integer, integers
from .model import Einsum, Factor, Shape, Shapes, factors_of


def _disjoint(op: ir.Operation, large: Shape, small: Shape, window: Sequence[int]) -> dict[int, int]:
    """The dimensions, with their stride, where window number i reads only elements [i * stride, (i + 1) * stride)."""
    rank = len(large)
    ones = [1] * rank
    strides = integers(op, "window_strides", ones)
    dilated = integers(op, "window_dilations", integers(op, "rhs_dilation", ones))
    base = integers(op, "base_dilations", integers(op, "lhs_dilation", ones))
    padding = integers(op, "padding", [0] * (2 * rank))
    return {
        dim: strides[dim]
        for dim in range(rank)
        if base[dim] == 1
        and padding[2 * dim] == padding[2 * dim + 1] == 0
        and (window[dim] - 1) * dilated[dim] + 1 <= strides[dim]
        and large[dim] == small[dim] * strides[dim]
    }


def _window_letters(disjoint: dict[int, int], rank: int) -> tuple[list[list[Hashable]], list[list[Hashable]]]:
    """The letters of the tensor that is read in windows, [i w], and of the one with an element a window, [i]."""
    large: list[list[Hashable]] = [
        [dim, ("within", dim)] if dim in disjoint else [("whole", dim)] for dim in range(rank)
    ]
    small: list[list[Hashable]] = [[dim] if dim in disjoint else [("other", dim)] for dim in range(rank)]
    return large, small


def _sizes(disjoint: dict[int, int], small: Shape) -> dict[Hashable, int]:
    sizes: dict[Hashable, int] = {("within", dim): stride for dim, stride in disjoint.items()}
    sizes |= {dim: small[dim] for dim in disjoint}
    return sizes


def reduce_window(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([iw,j],[])->([i,j])` where windows of w do not overlap; w is 1 in a dimension without a window."""
    source, result = shapes.operands[0], shapes.results[0]
    disjoint = _disjoint(op, source, result, integers(op, "window_dimensions", []))
    large, small = _window_letters(disjoint, len(source))
    count = len(shapes.results)
    sizes = _sizes(disjoint, result)
    return factors_of(Einsum([*[large] * count, *[[]] * count], [small] * count, sizes), shapes)


def select_and_scatter(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([iw,j],[i,j],[])->([iw,j])` where windows do not overlap."""
    operand, source, _ = shapes.operands
    disjoint = _disjoint(op, operand, source, integers(op, "window_dimensions", [1] * len(operand)))
    large, small = _window_letters(disjoint, len(operand))
    sizes = _sizes(disjoint, source)
    # What lies within a window stands in the operand and in the result, and is still one window's.
    whole = {(kind, dim) for dim in range(len(operand)) for kind in ("whole", "within")}
    return factors_of(Einsum([large, small, []], [large], sizes, whole=whole), shapes)


def convolution(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Batch, features, groups, and the spatial dimensions in which the kernel's windows do not overlap.

    Groups are the major part of the feature (or batch) dimension; what is minor to them stays whole.
    """
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    (left, kernel), result = shapes.operands, shapes.results[0]
    features, batches = integer(op, "feature_group_count", 1), integer(op, "batch_group_count", 1)
    in_left: list[list[Hashable]] = [[] for _ in left]
    in_kernel: list[list[Hashable]] = [[] for _ in kernel]
    in_result: list[list[Hashable]] = [[] for _ in result]
    in_left[numbers.input_batch_dimension] = ["batch groups", "batch"]
    in_left[numbers.input_feature_dimension] = ["feature groups", "input"]
    in_kernel[numbers.kernel_input_feature_dimension] = ["input"]
    in_kernel[numbers.kernel_output_feature_dimension] = ["batch groups", "feature groups", "output"]
    in_result[numbers.output_batch_dimension] = ["batch"]
    in_result[numbers.output_feature_dimension] = ["batch groups", "feature groups", "output"]
    sizes: dict[Hashable, int] = {
        "batch groups": batches,
        "feature groups": features,
        "batch": left[numbers.input_batch_dimension] // batches,
        "input": left[numbers.input_feature_dimension] // features,
        "output": kernel[numbers.kernel_output_feature_dimension] // (features * batches),
    }
    places = list(
        zip(
            numbers.input_spatial_dimensions,
            numbers.kernel_spatial_dimensions,
            numbers.output_spatial_dimensions,
            strict=True,
        )
    )
    disjoint = _disjoint(
        op,
        tuple(left[place] for place, _, _ in places),
        tuple(result[place] for _, _, place in places),
        [kernel[place] for _, place, _ in places],
    )
    large, small = _window_letters(disjoint, len(places))
    for index, (at_left, at_kernel, at_result) in enumerate(places):
        in_left[at_left], in_result[at_result] = large[index], small[index]
        in_kernel[at_kernel] = [("kernel", index)]
    sizes |= _sizes(disjoint, tuple(result[place] for _, _, place in places))
    return factors_of(Einsum([in_left, in_kernel], [in_result], sizes, summed=("input",)), shapes)
