"""Selects a form of a convolution that is fast on XLA:CPU, if its own is not in a loop, or nowhere."""

from __future__ import annotations

from math import prod
from typing import Literal

from exla_opt.ops.convolution import SHORT, Convolution
from exla_opt.ops.window_geometry import exceed_image

from .exchanged import exchanged
from .patches import bytes_of_patches, exceeds_image, kernel_bytes, patches_shape
from .positions import is_by_position

# turned: in the order of the fast kernel, with its groups. apart: in that order, a convolution for each group. joined:
# turned, with groups of features instead of groups of images. sum: a sum of products, position by position of the
# window. positions: a loop over the positions of the result. patches: a product of matrices. exchanged: turned, of the
# kernel as images with the images as a kernel.
Form = Literal["turned", "apart", "joined", "sum", "positions", "patches", "exchanged"]

NARROW = ("f32", *SHORT)
# Input features times output features. Chosen on 8 images of 28 x 28 with kernels of 5 x 5 and 4 of 64 x 64 with 3 x 3,
# the slow kernel's time over the fast one's: 1 x 1 features 0.04 and 0.17, 1 x 8 0.8 and 1.1, 3 x 8 1.6 and 2.9, more
# 1.4 to 95. On others, 16 of 20 x 20 with 3 x 3 and 6 of 33 x 33 with 1 x 1: below 24 0.08 to 1.6, above 3.9 to 46 and
# 0.6 to 5.8.
_LEAST_PRODUCTS = 24
# Positions of a large window, and the number of products that is then enough, without groups: the ratio is 0.5 to 12
# where this was chosen, one of 21 below 1, and 1.5 to 7.7 on 12 others. Groups with a large window, as in the gradients
# of every image's kernels, are transposed as well: 1.7 to 84 where this was chosen, and on 45 others 0.5 to 53, 11 in
# the middle, three of the smallest below 1.
_LARGE_WINDOW = 64
_LEAST_OF_LARGE = 4
# The products of a group that are worth a separate convolution, and the most convolutions that are written.
_LEAST_OF_GROUP = 32
_MOST_APART = 32
# With no more images than this per group, the fast kernel is faster with all groups of a kernel's gradient together.
_FEW_IMAGES = 2
# Depthwise kernels' gradients: the features from which a loop over the kernel's positions is faster than XLA, which
# convolves all pairs of features, for each element that a window skips: the loop reads all of them. And the most
# positions. XLA's time over the loop's outside of loops: 4 features 0.6 to 0.9, 8 to 12 0.7 to 3, 16 to 1,280 0.8 to
# 800; with fewer than 8 for each element that is skipped 0.6 to 0.7. In a loop it is 11 to 200.
_LEAST_BY_POSITION = 8
_MOST_POSITIONS = 256
# Kernels larger than the image: the products from which one product of matrices is faster than XLA's exchange of the
# two. XLA's time over its own, with kernels of 3 x 3 to 11 x 11 on images of 1 x 1 to 6 x 6: up to 256 products 0.5 to
# 1.6 (2.5 with 11 x 11), from 1,024 on 1.5 to 90.
_LEAST_OF_PATCHES = 512
# The multiplications from which others of these are exchanged before XLA does it: with fewer, both take at most a
# millisecond. XLA's time over that where the other conditions were chosen, on gradients by kernels of transposed
# convolutions: 1 to 85, 10 in the middle, and 0.09 where a kernel of one feature has one image.
_LEAST_EXCHANGED = 1_000_000
# The images' features from which that is so in three spatial dimensions: with 32 to 64 1.6 to 7.7, with 1 to 8 below
# 0.5.
_LEAST_IN_SPACE = 32
# XLA:CPU has a fast kernel for f64 if either feature count is more than this, on planes whose images have no gaps.
_FEW_DOUBLES = 16
# With this many groups, f64 always gains from separate convolutions: XLA computes each with the features of all.
_MANY_DOUBLES = 8


def fast_form(convolution: Convolution) -> Form | None:
    """The form that is faster; None if its own is as fast, or no faster one is known."""
    if convolution.is_reversed or 0 in (*convolution.image, *convolution.kernel, *convolution.result):
        return None
    if convolution.dtype in (*NARROW, "f64") and is_by_position(convolution):
        is_small = prod(convolution.result[1:-1]) <= _MOST_POSITIONS
        least = _LEAST_BY_POSITION * prod(window.dilation for window in convolution.windows)
        return "positions" if is_small and convolution.batch_groups >= least else None
    if convolution.dtype in (*NARROW, "f64") and exceeds_image(convolution):
        gains = _gains_exchanged(exchanged(convolution))
        if _gains_by_patches(convolution) and not (gains and bytes_of_patches(convolution) > kernel_bytes(convolution)):
            return "patches"
        if gains:
            return "exchanged"
    return _of_floats(convolution) if all(convolution.kept) else None


def _gains_by_patches(convolution: Convolution) -> bool:
    """Whether a product of patches is faster than a convolution of which XLA exchanges kernel and image."""
    enough = convolution.ins * convolution.outs >= _LEAST_OF_PATCHES
    return enough and 0 < patches_shape(convolution)[-2] <= _MOST_POSITIONS


def _gains_exchanged(convolution: Convolution) -> bool:
    """Whether XLA is faster with this convolution than with the one of which it exchanges kernel and image."""
    is_space = len(convolution.windows) > 2
    has_fast_kernel = convolution.dtype in NARROW and not is_space
    if exceed_image(convolution.windows, tuple(convolution.kept), convolution.result[1:-1]):
        return False  # without what negative padding drops, XLA would exchange the two again
    return (
        convolution.ins * convolution.outs >= _LEAST_OF_LARGE
        and convolution.multiplications >= _LEAST_EXCHANGED
        and (has_fast_kernel or convolution.places >= _LARGE_WINDOW)
        and (not is_space or convolution.outs >= _LEAST_IN_SPACE)
        and prod(convolution.result[1:-1]) > 1
        and all(convolution.kept)
    )


def _of_floats(convolution: Convolution) -> Form | None:
    if convolution.dtype in NARROW:
        return _of_narrow(convolution)
    return _of_doubles(convolution) if convolution.dtype == "f64" else None


def _of_narrow(convolution: Convolution) -> Form | None:
    groups, images = convolution.groups, convolution.batch_groups
    products = convolution.ins * convolution.outs
    is_large = convolution.places >= _LARGE_WINDOW
    if images > 1:
        if images <= _MOST_APART and products >= _LEAST_OF_GROUP and convolution.ins > _FEW_IMAGES:
            return "apart"
        return "joined" if is_large else None
    if groups == 1:
        enough = products >= (_LEAST_OF_LARGE if is_large else _LEAST_PRODUCTS)
        return "turned" if enough and not convolution.is_in_order else None
    if is_large:
        enough = convolution.ins * convolution.kernel[-1] >= _LEAST_PRODUCTS
        return "turned" if enough and not convolution.is_in_order else None
    if convolution.ins == 1:
        return "sum" if convolution.has_features_last else None
    return "apart" if groups <= _MOST_APART and products >= _LEAST_OF_GROUP else None


def _of_doubles(convolution: Convolution) -> Form | None:
    count = convolution.groups * convolution.batch_groups
    has_fast_kernel = (
        max(convolution.ins, convolution.outs) > _FEW_DOUBLES
        and len(convolution.windows) < 3
        and all(window.base == 1 for window in convolution.windows)
    )
    if count == 1:
        is_line = len(convolution.windows) == 1
        return "turned" if has_fast_kernel and (is_line or not convolution.is_in_order) else None
    if convolution.ins == 1 and convolution.groups > 1 and convolution.places < _LARGE_WINDOW:
        return "sum"
    return "apart" if count <= _MOST_APART and (has_fast_kernel or count >= _MANY_DOUBLES) else None
