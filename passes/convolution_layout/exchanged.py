"""Convolutions whose kernel is larger than the image, with the two exchanged.

before:  %y = convolution(%x, %g), of images of 16 x 16 with gaps between their elements and a kernel of 32 x 32
after:   %r = convolution(%g, %x), with the gaps between the elements of %x as a kernel
         %y = reverse(%r), in all dimensions of the window

So a gradient by the kernel of a transposed convolution becomes one by the kernel of a strided convolution. XLA's
simplifier exchanges the two itself, but it reverses the kernel's windows instead, for which XLA:CPU has no fast kernel.
"""

from __future__ import annotations

from dataclasses import replace

from exla_opt.ops.convolution import Convolution
from exla_opt.ops.window_geometry import Window


def exchanged(convolution: Convolution) -> Convolution:
    """The convolution of the kernel, as images, with the images, as a kernel, of one group.

    Its result is the same, reversed along all dimensions of the window. Element number k of the kernel meets element
    number p of the image at place o of the window if

        k * dilation = p * base - o * stride + low

    and, counted from the last place, at o' = places - 1 - o, that is the same with `stride` and with a padding that is
    `low` less the span of all places before the last.
    """
    image, kernel, result = convolution.orders
    shapes = convolution.image, convolution.kernel, convolution.result
    return replace(
        convolution,
        orders=(_as_images(kernel), _as_kernel(image), [result[-1], *result[1:-1], result[0]]),
        image=tuple(_as_images(list(shapes[1]))),
        kernel=tuple(_as_kernel(list(shapes[0]))),
        result=(shapes[2][-1], *shapes[2][1:-1], shapes[2][0]),
        windows=tuple(
            _exchanged(window, *lengths)
            for window, *lengths in zip(convolution.windows, shapes[0][1:-1], shapes[2][1:-1], strict=True)
        ),
    )


def _as_images(kernel: list[int]) -> list[int]:
    """Space, input features, output features as images, space, features: an image for each output feature."""
    *space, features, outs = kernel
    return [outs, *space, features]


def _as_kernel(images: list[int]) -> list[int]:
    """Images, space, features as space, input features, output features: an output feature for each image."""
    count, *space, features = images
    return [*space, features, count]


def _exchanged(window: Window, length: int, places: int) -> Window:
    """The windows along one dimension. length: of the image. places: of the window, at least one."""
    low = (places - 1) * window.stride - window.low
    span = (length - 1) * window.base + 1 + (places - 1) * window.stride
    return Window(length, window.stride, window.base, window.dilation, low, span - window.reach - low)
