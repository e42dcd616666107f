"""Ops with windows: reductions of windows, their scatter, and convolutions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.attributes import integer, integers

from .factor import DimMapping, Einsum, Factor, Kind, Shape, Shapes, factors_of
from .reducers import body_of, componentwise, counts_once


@dataclass(frozen=True, slots=True)
class Window:
    """How an op's windows lie along one dimension.

    Window number i begins at i * stride and has `size` elements, `dilation` apart. It reads the operand with `base` - 1
    gaps between its elements, and with `low` and `high` more (or fewer) of them at its ends.
    """

    size: int
    stride: int
    dilation: int
    base: int
    low: int
    high: int

    @property
    def reach(self) -> int:
        """How many elements a window spans."""
        return (self.size - 1) * self.dilation + 1

    @property
    def is_padded(self) -> bool:
        """Whether windows read what the operand does not have, or leave some of its ends out."""
        return (self.base, self.low, self.high) != (1, 0, 0)


def windows_of(op: ir.Operation, sizes: Sequence[int]) -> list[Window]:
    """The windows of an op, a dimension each (of a convolution, a spatial one). sizes: those of a window."""
    ones = [1] * len(sizes)
    strides = integers(op, "window_strides", ones)
    dilations = integers(op, "window_dilations", integers(op, "rhs_dilation", ones))
    bases = integers(op, "base_dilations", integers(op, "lhs_dilation", ones))
    padding = integers(op, "padding", [0] * (2 * len(sizes)))
    return list(map(Window, sizes, strides, dilations, bases, padding[::2], padding[1::2]))


def _disjoint(windows: Sequence[Window], large: Shape, small: Shape) -> dict[int, int]:
    """The dimensions, with their stride, where window number i reads only elements [i * stride, (i + 1) * stride)."""
    return {
        dim: window.stride
        for dim, window in enumerate(windows)
        if not window.is_padded and window.reach <= window.stride and large[dim] == small[dim] * window.stride
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


def is_halo(window: Window, large: int, small: int) -> bool:
    """Whether a tile of the windows reads less than the whole: they overlap or are padded, but are not that long."""
    return small > 1 and large > 0 and window.reach < large


def is_running(window: Window, large: int, small: int) -> bool:
    """Whether window number i is elements [0, i]: a cumulative sum, product, minimum or maximum."""
    return large == small > 1 and window == Window(large, 1, 1, 1, large - 1, 0)


def reduce_window(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([iw,j],[])->([i,j])` where windows of w do not overlap; w is 1 in a dimension without a window.

    Where windows overlap or are padded, the tile reads the elements that its own windows span from the whole operand.
    Where they grow from the first element on, the tile goes on from the one before.
    """
    source, result = shapes.operands[0], shapes.results[0]
    windows = windows_of(op, integers(op, "window_dimensions", []))
    disjoint = _disjoint(windows, source, result)
    large, small = _window_letters(disjoint, len(source))
    count = len(shapes.results)
    sizes = _sizes(disjoint, result)
    factors = list(factors_of(Einsum([*[large] * count, *[[]] * count], [small] * count, sizes), shapes))
    names = componentwise(body_of(op))
    # XLA leaves the padding out where the specification reduces the init again: they agree on an identity.
    no_harm = names is not None and all(map(counts_once, list(op.operands)[count:], names))
    nothing: list[DimMapping | None] = [None] * count
    for dim, window in enumerate(windows):
        mapping = DimMapping(dim, result[dim])
        if dim in disjoint or 0 in source:
            continue
        if is_running(window, source[dim], result[dim]) and no_harm:
            factors.append(Factor(Kind.SCAN, mapping.length, (*[mapping] * count, *nothing), (mapping,) * count))
        elif is_halo(window, source[dim], result[dim]) and (no_harm or not window.is_padded):
            factors.append(Factor(Kind.INDEPENDENT, mapping.length, (*nothing, *nothing), (mapping,) * count))
    return tuple(factors)


def select_and_scatter(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """`([iw,j],[i,j],[])->([iw,j])` where windows do not overlap."""
    operand, source, _ = shapes.operands
    windows = windows_of(op, integers(op, "window_dimensions", [1] * len(operand)))
    disjoint = _disjoint(windows, operand, source)
    large, small = _window_letters(disjoint, len(operand))
    sizes = _sizes(disjoint, source)
    # What lies within a window stands in the operand and in the result, and is still one window's.
    whole = {(kind, dim) for dim in range(len(operand)) for kind in ("whole", "within")}
    return factors_of(Einsum([large, small, []], [large], sizes, whole=whole), shapes)


def convolution(op: ir.Operation, shapes: Shapes) -> tuple[Factor, ...]:
    """Batch, features, groups, and the spatial dimensions.

    Where the kernel's windows overlap or are padded, the tile reads what its own windows span from the whole operand.
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
    windows = windows_of(op, [kernel[place] for place in numbers.kernel_spatial_dimensions])
    sources = tuple(left[place] for place in numbers.input_spatial_dimensions)
    counts = tuple(result[place] for place in numbers.output_spatial_dimensions)
    disjoint = _disjoint(windows, sources, counts)
    large, small = _window_letters(disjoint, len(windows))
    halos = []
    for index, at_result in enumerate(numbers.output_spatial_dimensions):
        in_left[numbers.input_spatial_dimensions[index]] = large[index]
        in_kernel[numbers.kernel_spatial_dimensions[index]] = [("kernel", index)]
        in_result[at_result] = small[index]
        if index not in disjoint and 0 not in left and is_halo(windows[index], sources[index], counts[index]):
            mapping = DimMapping(at_result, counts[index])
            halos.append(Factor(Kind.INDEPENDENT, mapping.length, (None, None), (mapping,)))
    sizes |= _sizes(disjoint, counts)
    return (*factors_of(Einsum([in_left, in_kernel], [in_result], sizes, summed=("input",)), shapes), *halos)
