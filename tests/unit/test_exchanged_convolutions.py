"""Convolutions whose kernel is larger than the image: exchanged with it, executed before and after."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU
from exla_opt.ops.convolution import read_convolution
from exla_opt.ops.window_geometry import Window
from exla_opt.options import Options
from exla_opt.passes.convolution_layout.exchanged import exchanged
from exla_opt.passes.convolution_layout.rewrite import write_form
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.convolutions import rewritten, temp_of
from tests.execute import assert_equal_results, run_module

PLAIN, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
Layer = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]
# Transposed convolutions whose gradient by the kernel is exchanged: image, kernel, strides, orders, and the rest.
LAYERS: dict[str, Layer] = {
    "plane": ((16, 8, 9, 16), (3, 3, 16, 12), (2, 2), PLAIN, {}),
    "features first": ((16, 16, 8, 9), (12, 16, 3, 4), (2, 3), NCHW, {}),
    "valid": ((8, 8, 8, 16), (5, 5, 16, 12), (2, 2), PLAIN, {"padding": "VALID"}),
    "kernel smaller than the stride": ((32, 16, 16, 16), (1, 2, 16, 12), (3, 2), PLAIN, {"padding": "VALID"}),
    "without gaps": ((16, 12, 12, 16), (3, 3, 16, 12), (1, 1), PLAIN, {"padding": "VALID"}),
    "dilated kernel": ((16, 8, 8, 16), (3, 3, 16, 12), (2, 2), PLAIN, {"rhs_dilation": (2, 2)}),
    "line": ((16, 128, 16), (5, 16, 12), (2,), ("NWC", "WIO", "NWC"), {}),
    "space": ((8, 4, 4, 4, 32), (3, 3, 3, 32, 12), (2, 2, 2), ("NDHWC", "DHWIO", "NDHWC"), {}),
    "half": ((16, 8, 9, 16), (3, 3, 16, 12), (2, 2), PLAIN, {"dtype": "bfloat16"}),
    "double": ((16, 8, 9, 16), (3, 3, 16, 12), (2, 2), PLAIN, {"dtype": "float64"}),
}
LEFT: dict[str, Layer] = {
    "no gaps, no larger": ((4, 12, 12, 16), (3, 3, 16, 12), (1, 1), PLAIN, {}),
    "one image with one feature": ((1, 64, 64, 1), (3, 3, 1, 32), (2, 2), PLAIN, {}),
    "few products": ((4, 4, 4, 8), (3, 3, 8, 8), (2, 2), PLAIN, {}),
    "space, few features": ((64, 8, 8, 8, 2), (3, 3, 3, 2, 2), (2, 2, 2), ("NDHWC", "DHWIO", "NDHWC"), {}),
    "space, few pixels": ((16, 2, 2, 2, 8), (5, 5, 5, 8, 31), (4, 4, 4), ("NDHWC", "DHWIO", "NDHWC"), {}),
}


def gradient(layer: Layer, looped: bool = False) -> str:
    """A program for the gradient of a transposed convolution by its kernel, of one batch or of two in a scan."""
    image, kernel, strides, orders, rest = layer
    rest = {"padding": "SAME", **rest}
    dtype = rest.pop("dtype", "float32")

    def apply(x: Any, weights: Any) -> Any:
        return lax.conv_transpose(x, weights, strides, dimension_numbers=orders, **rest)

    def by_kernel(x: Any, dy: Any) -> Any:
        return jax.vjp(lambda weights: apply(x, weights), jnp.zeros(kernel, dtype))[1](dy)[0]

    def summed(xs: Any, dys: Any) -> Any:
        return lax.scan(lambda total, each: (total + by_kernel(*each), None), jnp.zeros(kernel, dtype), (xs, dys))[0]

    with jax.enable_x64(True):
        x = jax.ShapeDtypeStruct(image, dtype)
        dy = jax.eval_shape(apply, x, jax.ShapeDtypeStruct(kernel, dtype))
        specs = [jax.ShapeDtypeStruct((2, *each.shape), dtype) if looped else each for each in (x, dy)]
        return str(export.export(jax.jit(summed if looped else by_kernel))(*specs).mlir_module())


@pytest.mark.parametrize("looped", [False, True], ids=["alone", "in a loop"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_gradient_is_exchanged(name: str, looped: bool) -> None:
    before = gradient(LAYERS[name], looped)
    after = rewritten(before)
    assert "stablehlo.reverse" in after
    assert_equal_results(before, after)
    assert rewritten(after) == after, "a second run changes it"


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    assert "stablehlo.reverse" not in rewritten(gradient(LEFT[name]))


@pytest.mark.parametrize("name", ["plane", "features first", "valid", "line", "double"])
def test_the_exchange_needs_no_more_memory(name: str) -> None:
    before = gradient(LAYERS[name])
    predicted, compiled = temp_of(rewritten(before))
    assert compiled <= 1.05 * temp_of(before)[1]
    assert compiled == pytest.approx(predicted, rel=0.05)


def test_many_images_of_few_pixels_are_exchanged_and_few_are_a_product() -> None:
    def convolved(count: int) -> str:
        specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((count, 2, 2, 64), (3, 3, 64, 64))]
        layer = jax.jit(
            lambda x, weights: lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=PLAIN)
        )
        return str(export.export(layer)(*specs).mlir_module())

    for count, is_exchanged in ((32, True), (4, False)):
        before = convolved(count)
        after = rewritten(before, Options(machine=CPU, memory_limit=10**9))
        assert ("stablehlo.convolution" in after) == ("stablehlo.reverse" in after) == is_exchanged
        assert_equal_results(before, after)


def test_an_exchange_that_needs_more_memory_is_left() -> None:
    """XLA leaves these images as they lie; exchanged, they are a kernel, in another order of dimensions."""
    form = ((64, 3, 4, 256), (4, 6, 256, 8))
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in form]
    layer = jax.jit(
        lambda x, weights: lax.conv_general_dilated(x, weights, (1, 1), ((2, 2), (3, 3)), dimension_numbers=PLAIN)
    )
    before = str(export.export(layer)(*specs).mlir_module())
    assert rewritten(before) == rewritten(before, Options(machine=CPU, reassociate=False))
    roomy = rewritten(before, Options(machine=CPU, memory_limit=10**8))
    assert "stablehlo.reverse" in roomy and temp_of(roomy)[1] > 1.5 * temp_of(before)[1]


def test_a_kernel_that_the_program_reversed_is_exchanged_where_the_limit_leaves_room() -> None:
    """XLA then reverses nothing, so that the reversed result may be more."""

    def by_image(dy: Any, weights: Any) -> Any:
        turned = lax.rev(weights, (0, 1))
        return lax.conv_general_dilated(dy, turned, (1, 1), "SAME", dimension_numbers=("NHWC", "HWOI", "NHWC"))

    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 2, 2, 64), (3, 3, 64, 64))]
    before = str(export.export(jax.jit(by_image))(*specs).mlir_module())
    after = rewritten(before, Options(machine=CPU, memory_limit=10**9))
    assert after.count("stablehlo.reverse") == 2 and rewritten(before).count("stablehlo.reverse") == 1
    assert_equal_results(before, after)


def test_a_decoder_is_split_and_exchanged() -> None:
    """The splitter cuts the batch of a gradient by a kernel, and the pass exchanges what is left in the loop."""

    def loss(weights: Any, x: Any) -> Any:
        for kernel in weights:
            x = jnp.tanh(lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=PLAIN))
        return (x**2).sum()

    shapes = [(4, 4, 8, 16), (4, 4, 16, 8), (4, 4, 8, 4)]
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    before = export.export(jax.jit(jax.grad(loss)))(
        specs, jax.ShapeDtypeStruct((16, 8, 8, 8), jnp.float32)
    ).mlir_module()
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=300_000, split_size=300_000))
        after = serialise(module, "text").decode()
    assert temp_of(after)[1] * 2 < temp_of(before)[1]
    assert "stablehlo.reverse" in after[after.index("stablehlo.while") :]
    assert_equal_results(before, after)


@pytest.mark.parametrize("seed", range(40))
def test_the_exchanged_convolution_is_the_same(seed: int) -> None:
    """With windows of any kind, whether it gains or not; and exchanged twice it is itself.

    Against NumPy: XLA:CPU itself is wrong where negative padding drops nearly all of an image.
    """
    draw = random.Random(seed)
    count = draw.choice([1, 2])
    lengths, sizes = ([draw.randint(2, 6) for _ in range(count)] for _ in range(2))
    strides, dilations, bases = ([draw.randint(1, 3) for _ in range(count)] for _ in range(3))
    windows = [Window(*each, draw.randint(-1, 3), 0) for each in zip(sizes, strides, dilations, bases, strict=True)]
    edges = [
        (window.low, max(draw.randint(-1, 3), window.reach - window.low - (length - 1) * window.base - 1))
        for window, length in zip(windows, lengths, strict=True)
    ]
    images, features, outs = (draw.randint(1, 3) for _ in range(3))
    letters = ("NHWC", "HWIO", "NHWC") if count == 2 else ("NWC", "WIO", "NWC")
    images_order, kernel_order, result_order = ("".join(draw.sample(each, len(each))) for each in letters)
    if kernel_order.find("H") > kernel_order.index("W"):  # strides and the like are in the order of its letters
        kernel_order = kernel_order[::-1]
    orders = images_order, kernel_order, result_order
    random_numbers = np.random.default_rng(seed)
    image = random_numbers.standard_normal((images, *lengths, features))
    kernel = random_numbers.standard_normal((*sizes, features, outs))
    arrays = [
        each.transpose([straight.index(letter) for letter in order])
        for each, straight, order in zip((image, kernel), letters, orders, strict=False)
    ]

    def convolve(x: Any, weights: Any) -> Any:
        return lax.conv_general_dilated(x, weights, strides, edges, bases, dilations, dimension_numbers=orders)

    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct(each.shape, "float64") for each in arrays]
        before = export.export(jax.jit(convolve))(*specs).mlir_module()
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        [op] = inside_out(module, "stablehlo.convolution")
        convolution = read_convolution(op)
        again = exchanged(exchanged(convolution))
        assert [window.low for window in again.windows] == [window.low for window in convolution.windows]
        assert replace(again, windows=convolution.windows) == convolution
        with op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(write_form(op, convolution, "exchanged"))
        op.erase()
        [found] = run_module(module, arrays)
    result = by_numpy(image, kernel, convolution.result[1:-1], windows)
    assert found == pytest.approx(result.transpose([letters[2].index(letter) for letter in orders[2]]), abs=1e-12)


def by_numpy(image: Any, kernel: Any, places: Sequence[int], windows: Sequence[Window]) -> Any:
    """A convolution of an image [images, space, features], element by element of its windows."""
    result = np.zeros((image.shape[0], *places, kernel.shape[-1]))
    for place in np.ndindex(*places):
        for at in np.ndindex(*kernel.shape[:-2]):
            read = [p * w.stride + k * w.dilation - w.low for p, k, w in zip(place, at, windows, strict=True)]
            inside = zip(read, windows, image.shape[1:-1], strict=True)
            if all(r % w.base == 0 and 0 <= r // w.base < length for r, w, length in inside):
                element = tuple(r // w.base for r, w in zip(read, windows, strict=True))
                result[(slice(None), *place)] += image[(slice(None), *element)] @ kernel[at]
    return result
