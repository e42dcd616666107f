"""A convolution as plain values, its dimensions in the order of XLA:CPU's fast kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integer
from exla_opt.ir.types import element_type

from .window_geometry import Window, has_reversed_windows, windows_of

# Floats that XLA:CPU convolves in f32.
SHORT = ("bf16", "f16")


@dataclass(frozen=True, slots=True)
class Convolution:
    """The values of a convolution.

    orders: the dimensions of image, kernel and result in the fast kernel's order: batch, space, features of the image
    and the result; space, input features, output features of the kernel.
    image, kernel, result: the shapes in these orders. dtype: of all three, or of the first two, if the result is added
    up in f32; empty if they differ otherwise.
    groups: of features. batch_groups: of images; image number i is read with part i // (images / groups) of the output
    features.
    """

    orders: tuple[list[int], list[int], list[int]]
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]
    dtype: str
    windows: tuple[Window, ...]
    is_reversed: bool
    groups: int
    batch_groups: int

    @property
    def is_in_order(self) -> bool:
        """Whether nothing needs to be transposed."""
        return all(order == sorted(order) for order in self.orders)

    @property
    def has_features_last(self) -> bool:
        """Whether the features are the innermost dimension of the image and the result."""
        return all(order[-1] == len(order) - 1 for order in (self.orders[0], self.orders[2]))

    @property
    def kept(self) -> list[int]:
        """The lengths of the image along its windows, without the elements that negative padding drops; at least 0."""
        pairs = zip(self.image[1:-1], self.windows, strict=True)
        return [max(length - sum(window.dropped), 0) for length, window in pairs]

    @property
    def ins(self) -> int:
        """The number of input features of a group."""
        return self.kernel[-2]

    @property
    def outs(self) -> int:
        """The number of output features of a group."""
        return self.kernel[-1] // (self.groups * self.batch_groups)

    @property
    def multiplications(self) -> int:
        """The number of multiplications, with those of the padding."""
        return prod(self.result) * self.places * self.ins

    @property
    def places(self) -> int:
        """The number of positions in a window."""
        return prod(self.kernel[:-2])


def read_convolution(op: ir.Operation) -> Convolution:
    """The values of a stablehlo.convolution."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    values = (*op.operands, op.results[0])
    orders = (
        [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension],
        [
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
        ],
        [numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension],
    )
    image, kernel, result = (
        tuple(build.shape_of(value)[dim] for dim in order) for value, order in zip(values, orders, strict=True)
    )
    kind, *others = (str(element_type(value)) for value in values)
    is_uniform = others == [kind, kind] or (kind in SHORT and others == [kind, "f32"])
    return Convolution(
        orders=orders,
        image=image,
        kernel=kernel,
        result=result,
        dtype=kind if is_uniform else "",
        windows=tuple(windows_of(op, kernel[:-2])),
        is_reversed=has_reversed_windows(op),
        groups=integer(op, "feature_group_count", 1),
        batch_groups=integer(op, "batch_group_count", 1),
    )
