"""The positions of windows on an op's operand, and the elements that tiles of them read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op

from .factor import Shape
from .tile import read_padded, replaced


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of an op along one dimension.

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
        """The number of elements that a window spans."""
        return (self.size - 1) * self.dilation + 1

    @property
    def dropped(self) -> tuple[int, int]:
        """How many elements of the operand negative padding drops at its low and its high end, or more than it has."""
        return max(-(self.low // self.base), 0), max(-(self.high // self.base), 0)

    @property
    def is_padded(self) -> bool:
        """Whether windows read beyond the operand, or skip some of its ends."""
        return (self.base, self.low, self.high) != (1, 0, 0)


# For a dimension without windows.
NO_WINDOW = Window(1, 1, 1, 1, 0, 0)


def windows_of(op: ir.Operation, sizes: Sequence[int]) -> list[Window]:
    """The windows of an op, one per dimension (for a convolution, per spatial one). sizes: of a window."""
    ones = [1] * len(sizes)
    strides = integers(op, "window_strides", ones)
    dilations = integers(op, "window_dilations", integers(op, "rhs_dilation", ones))
    bases = integers(op, "base_dilations", integers(op, "lhs_dilation", ones))
    padding = integers(op, "padding", [0] * (2 * len(sizes)))
    return list(map(Window, sizes, strides, dilations, bases, padding[::2], padding[1::2]))


def exceed_image(windows: Sequence[Window], image: Shape, places: Shape) -> bool:
    """Whether a convolution's window has more positions than its image.

    XLA then exchanges the two: it convolves a reversed copy of the kernel with the images. Dimensions in which every
    position meets one place of the image do not count, nor do those with one place in all.

    image, places: the lengths of the image and of the result along the dimensions of the windows.
    """
    counted = [
        (window.size, length)
        for window, length, count in zip(windows, image, places, strict=True)
        if not (length == 1 and count == window.size)
        and not (length == window.size and not window.is_padded and window.dilation == 1)
    ]
    return prod(size for size, _ in counted) > prod(length for _, length in counted)


def has_reversed_windows(op: ir.Operation) -> bool:
    """Whether a convolution reads its kernel backwards along some dimension."""
    name = "window_reversal"
    return name in op.attributes and any(ir.DenseBoolArrayAttr(op.attributes[name]))


def has_reversed_kernel(op: ir.Operation, places: Sequence[int]) -> bool:
    """Whether the program has reversed a convolution's kernel in the dimensions of its window, and in no other.

    places: these dimensions. Those of one element do not count.
    """
    reverse = defining_op(op.operands[1], "stablehlo.reverse")
    longer = {dim for dim, length in enumerate(build.shape_of(op.operands[1])) if length > 1}
    return reverse is not None and longer & set(integers(reverse, "dimensions", [])) == longer & set(places)


def disjoint_windows(windows: Sequence[Window], large: Shape, small: Shape) -> dict[int, int]:
    """The dimensions, with their stride, where window number i reads only elements [i * stride, (i + 1) * stride)."""
    return {
        dim: window.stride
        for dim, window in enumerate(windows)
        if not window.is_padded and window.reach <= window.stride and large[dim] == small[dim] * window.stride
    }


def window_letters(disjoint: dict[int, int], rank: int) -> tuple[list[list[Hashable]], list[list[Hashable]]]:
    """The letters of the tensor that is read in windows, [i w], and of the one with an element per window, [i]."""
    large: list[list[Hashable]] = [
        [dim, ("within", dim)] if dim in disjoint else [("uncut", dim)] for dim in range(rank)
    ]
    small: list[list[Hashable]] = [[dim] if dim in disjoint else [("other", dim)] for dim in range(rank)]
    return large, small


def window_sizes(disjoint: dict[int, int], small: Shape) -> dict[Hashable, int]:
    """The sizes of the letters of disjoint windows."""
    sizes: dict[Hashable, int] = {("within", dim): stride for dim, stride in disjoint.items()}
    sizes |= {dim: small[dim] for dim in disjoint}
    return sizes


def is_halo(window: Window, large: int, small: int) -> bool:
    """Whether a tile of the windows reads a part of the operand: they overlap or are padded, but are not too long."""
    return small > 1 and large > 0 and window.reach < large


def is_running(window: Window, large: int, small: int) -> bool:
    """Whether window number i is elements [0, i]: a cumulative sum, product, minimum or maximum."""
    return large == small > 1 and window == Window(large, 1, 1, 1, large - 1, 0)


def spanned(value: ir.Value, dim: int, window: Window, start: ir.Value, count: int, fill: ir.Value) -> ir.Value:
    """The span of `count` windows from number `start` on, in the padded operand."""
    first = start if window.stride == 1 else stablehlo.multiply(start, build.scalar_like(start, window.stride))
    length = (count - 1) * window.stride + window.reach
    return read_padded(value, dim, first, length, (window.low, window.high, window.base - 1), fill)


def padded(image: ir.Value, dims: Sequence[int], windows: Sequence[Window]) -> ir.Value:
    """A tensor with the padding of these windows, and their gaps between elements, along these dimensions."""
    low, high, between = ([0] * len(build.shape_of(image)) for _ in range(3))
    for dim, window in zip(dims, windows, strict=True):
        low[dim], high[dim], between[dim] = window.low, window.high, window.base - 1
    if not any((*low, *high, *between)):
        return image
    zero = build.zeros(ir.RankedTensorType.get([], element_type(image)))
    made: ir.Value = stablehlo.pad(image, zero, low, high, between)
    return made


def unpadded(op: ir.Operation, dim: int, base: str) -> dict[str, ir.Attribute]:
    """The attributes of an op whose operand is already padded along window dimension `dim`."""
    changed: dict[str, ir.Attribute] = {}
    if base in op.attributes:
        changed[base] = ir.DenseI64ArrayAttr.get(replaced(integers(op, base, []), dim, 1))
    if "padding" in op.attributes:
        low_and_high = integers(op, "padding", [])
        changed["padding"] = edges(replaced(replaced(low_and_high, 2 * dim, 0), 2 * dim + 1, 0), op.context)
    return changed


def edges(numbers: Sequence[int], context: ir.Context) -> ir.Attribute:
    """The padding attribute: low and high for each dimension."""
    kind = ir.IntegerType.get_signless(64, context)
    shaped = ir.RankedTensorType.get([len(numbers) // 2, 2], kind)
    return ir.DenseElementsAttr.get([ir.IntegerAttr.get(kind, number) for number in numbers], type=shaped)
