"""Convolutions whose kernel is larger than the image, as a product of matrices.

before:  %y = convolution(%x, %k), of images of 2 x 2 with a kernel of 3 x 3
after:   %p = concatenate(slices of the padded %x, one for each position of the kernel)
         %y = dot(%p as [images x pixels, positions x features], %k as [positions x features, output features])

XLA's simplifier exchanges the two: it convolves a reversed copy of the kernel with the images as kernels, for which
XLA:CPU has no fast kernel. Positions of the kernel that meet nothing but padding are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.attributes import integers
from exla_opt.ir.values import defining_op
from exla_opt.ops.convolution import SHORT, Convolution
from exla_opt.ops.window_geometry import Window, exceed_image, has_reversed_kernel, padded

from .positions import read_at


def exceeds_image(convolution: Convolution) -> bool:
    """Whether the kernel has more positions than the image, and there is one group."""
    lengths = convolution.image[1:-1], convolution.result[1:-1]
    return convolution.groups == convolution.batch_groups == 1 and exceed_image(convolution.windows, *lengths)


def positions_used(convolution: Convolution) -> list[range]:
    """For each dimension of the kernel, the positions between the first and the last one that meet the image."""
    return [
        range(min(used), max(used) + 1) if used else range(0)
        for window, length, places in zip(
            convolution.windows, convolution.image[1:-1], convolution.result[1:-1], strict=True
        )
        for used in ([at for at in range(window.size) if _meets(window, length, places, at)],)
    ]


def _meets(window: Window, length: int, places: int, at: int) -> bool:
    """Whether a position of the kernel reads an element of the image, at any of the places of the window."""
    read = (place * window.stride + at * window.dilation - window.low for place in range(places))
    return any(element % window.base == 0 and 0 <= element // window.base < length for element in read)


def patches_shape(convolution: Convolution) -> tuple[int, ...]:
    """The shape of what the product reads instead of the image."""
    used = prod(map(len, positions_used(convolution)))
    return (*convolution.result[:-1], used, convolution.ins)


def bytes_of_patches(convolution: Convolution) -> int:
    """The bytes of all that the form copies: the padded image, the patches, and a kernel or result in another order.

    Products of narrow floats are computed in f32.
    """
    each = 8 if convolution.dtype == "f64" else 4
    shape, windows = patches_shape(convolution), convolution.windows
    lengths = [
        max((length - 1) * window.base + 1 + window.low + window.high, 0)
        for length, window in zip(convolution.image[1:-1], windows, strict=True)
    ]
    kernel = shape[-2] * convolution.ins * convolution.outs
    is_copied = shape[-2] < convolution.places or convolution.dtype in SHORT or not _in_order(convolution.orders[1])
    return each * (
        prod(shape)
        + (convolution.image[0] * prod(lengths) * convolution.ins if any(each.is_padded for each in windows) else 0)
        + (kernel if is_copied else 0)
        + (0 if _in_order(convolution.orders[2]) else prod(convolution.result))
    )


def bytes_of_reversed(op: ir.Operation, convolution: Convolution) -> int:
    """The bytes of the reversed kernel that XLA makes instead: none of one that the program has reversed."""
    if has_reversed_kernel(op, convolution.orders[1][:-2]):
        return 0
    return kernel_bytes(convolution)


def kernel_bytes(convolution: Convolution) -> int:
    """The bytes of a convolution's kernel."""
    return prod(convolution.kernel) * (8 if convolution.dtype == "f64" else 2 if convolution.dtype in SHORT else 4)


def _in_order(order: Sequence[int]) -> bool:
    return list(order) == sorted(order)


def by_patches(op: ir.Operation, convolution: Convolution) -> ir.Value:
    """The result of such a convolution; built at the insertion point."""
    used, shape = positions_used(convolution), patches_shape(convolution)
    spatial, read = range(1, len(used) + 1), [*shape[:-2], shape[-1]]
    image = padded(build.transposed(op.operands[0], convolution.orders[0]), spatial, convolution.windows)
    kernel, mirrored = _unreversed(op.operands[1], convolution.orders[1])
    places = product(*(each[::-1] if turned else each for each, turned in zip(used, mirrored, strict=True)))
    parts = [read_at(image, place, spatial, convolution.windows, read) for place in places]
    kind = build.with_shape(build.tensor_of(image), [*shape[:-2], prod(shape[-2:])])
    joined: ir.Value = stablehlo.ConcatenateOp(parts, len(kind.shape) - 1, results=[kind]).result
    rows = build.reshaped(joined, [prod(shape[:-2]), prod(shape[-2:])])
    kernel = build.transposed(kernel, convolution.orders[1])
    sizes = convolution.kernel[:-2]
    if any(len(each) < size for each, size in zip(used, sizes, strict=True)):
        first = [
            size - each.stop if turned else each.start for each, size, turned in zip(used, sizes, mirrored, strict=True)
        ]
        limit = [*(start + len(each) for start, each in zip(first, used, strict=True)), *convolution.kernel[-2:]]
        kernel = stablehlo.slice(kernel, [*first, 0, 0], limit, [1] * len(limit))
    columns = build.reshaped(kernel, [prod(shape[-2:]), convolution.outs])
    result = build.tensor_of(op.results[0])
    numbers = stablehlo.DotDimensionNumbers.get([], [], [1], [0])
    precision = op.attributes.get("precision_config", None)
    made = stablehlo.dot_general(
        build.with_shape(result, [prod(shape[:-2]), convolution.outs]),
        rows,
        columns,
        numbers,
        precision_config=precision,
    )
    order = convolution.orders[2]
    return build.transposed(build.reshaped(made, convolution.result), [order.index(dim) for dim in range(len(order))])


def _unreversed(kernel: ir.Value, order: Sequence[int]) -> tuple[ir.Value, list[bool]]:
    """What a kernel is a reversal of, in spatial dimensions alone, and in which; itself if it is none."""
    places = order[:-2]
    reverse = defining_op(kernel, "stablehlo.reverse")
    dims = [] if reverse is None else integers(reverse, "dimensions", [])
    if reverse is None or not set(dims) <= set(places):
        return kernel, [False] * len(places)
    return reverse.operands[0], [dim in dims for dim in places]
