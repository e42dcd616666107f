"""Convolutions with one position of the kernel or of the result: which become products, and that they stay right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes import pointwise_convolutions
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results, run_module

NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
NAME, CONVOLUTION = "pointwise-convolutions", "stablehlo.convolution"
Case = tuple[tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]
# Each with the shapes of image and kernel, the orders of dimensions, and the rest.
PRODUCTS: dict[str, Case] = {
    "layer": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {}),
    "features first": ((4, 16, 6, 5), (12, 16, 1, 1), NCHW, {}),
    "result's features first": ((4, 6, 5, 16), (1, 1, 16, 12), ("NHWC", "HWIO", "NCHW"), {}),
    "batch inside": ((6, 16, 4, 5), (12, 1, 16, 1), ("HCNW", "OHIW", "WNCH"), {}),
    "strides": ((4, 7, 5, 16), (1, 1, 16, 12), NHWC, {"window_strides": (3, 2)}),
    "strides after dropped rows": (
        (4, 9, 5, 16),
        (1, 1, 16, 12),
        NHWC,
        {"window_strides": (3, 2), "padding": ((-2, 0), (-1, -1))},
    ),
    "padding": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"padding": ((1, 2), (0, 1))}),
    "gaps": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"lhs_dilation": (2, 3), "padding": ((0, 1), (2, 0))}),
    "gaps, dropped ends": (
        (4, 6, 5, 16),
        (1, 1, 16, 12),
        NHWC,
        {"lhs_dilation": (2, 3), "padding": ((-3, 1), (1, -4))},
    ),
    "whole image": ((4, 3, 2, 16), (3, 2, 16, 12), NHWC, {"padding": "VALID"}),
    "whole image, features first": ((4, 16, 3, 2), (12, 16, 3, 2), NCHW, {"padding": "VALID"}),
    "gradient by the kernel": ((4, 6, 5, 16), (4, 6, 5, 12), ("CHWN", "IHWO", "HWNC"), {"padding": "VALID"}),
    "gradient by the kernel, features first": (
        (4, 16, 6, 5),
        (4, 12, 6, 5),
        ("CNHW", "IOHW", "CNHW"),
        {"padding": "VALID"},
    ),
    "gradient by the kernel of a layer with strides": (
        (4, 7, 6, 16),
        (4, 4, 3, 12),
        ("CHWN", "IHWO", "HWNC"),
        {"rhs_dilation": (2, 2), "padding": ((0, 0), (0, -1))},
    ),
    "a line of the image": ((4, 6, 5, 16), (1, 5, 16, 12), NHWC, {"padding": "VALID"}),
    "a part of the image": ((4, 6, 5, 16), (3, 2, 16, 12), NHWC, {"padding": ((-1, -2), (0, -3))}),
    "line": ((4, 16, 30), (12, 16, 1), ("NCW", "OIW", "NCW"), {"window_strides": (2,)}),
    "space": ((2, 3, 5, 4, 16), (1, 1, 1, 16, 12), ("NDHWC", "DHWIO", "NDHWC"), {"window_strides": (1, 2, 1)}),
    "no space": ((4, 16), (16, 12), ("NC", "IO", "NC"), {"window_strides": ()}),
    "half": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"dtype": "bfloat16"}),
    "half, added up in float32": (
        (4, 6, 5, 16),
        (4, 6, 5, 12),
        ("CHWN", "IHWO", "HWNC"),
        {"padding": "VALID", "dtype": "bfloat16", "preferred_element_type": jnp.float32},
    ),
    "half of 5 bits": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"dtype": "float16"}),
    "double": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"dtype": "float64"}),
    "precise": ((4, 16, 6, 5), (12, 16, 1, 1), ("NCHW", "OIHW", "CNHW"), {"precision": ("highest", "default")}),
}
LEFT: dict[str, Case] = {
    "neighbours": ((4, 6, 5, 16), (3, 3, 16, 12), NHWC, {"padding": "SAME"}),
    "a line of neighbours": ((4, 6, 5, 16), (1, 3, 16, 12), NHWC, {"padding": "SAME"}),
    "few features": ((4, 6, 5, 7), (1, 1, 7, 9), NHWC, {}),
    "groups": ((4, 6, 5, 32), (1, 1, 16, 12), NHWC, {"feature_group_count": 2}),
    "groups of images": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"batch_group_count": 2}),
    "padding and strides": (
        (4, 6, 5, 16),
        (1, 1, 16, 12),
        NHWC,
        {"window_strides": (2, 2), "padding": ((1, 1), (0, 0))},
    ),
    "gaps and strides": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"window_strides": (3, 3), "lhs_dilation": (2, 2)}),
    "a window beyond the image": ((4, 3, 2, 16), (4, 2, 16, 12), NHWC, {"padding": ((1, 0), (0, 0))}),
    "whole image, with gaps": ((4, 3, 2, 16), (5, 2, 16, 12), NHWC, {"lhs_dilation": (2, 1)}),
    "integers": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"dtype": "int32"}),
    "no positions": ((4, 6, 5, 16), (1, 1, 16, 12), NHWC, {"padding": ((-6, 0), (0, 0))}),
    "no images": ((0, 6, 5, 16), (1, 1, 16, 12), NHWC, {}),
}


def exported(function: Callable[..., Any], *shapes: tuple[tuple[int, ...], Any]) -> str:
    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
        return str(export.export(jax.jit(function))(*specs).mlir_module())


def program(case: Case) -> str:
    image, kernel, orders, rest = case
    rest = {"window_strides": (1,) * (len(image) - 2), "padding": ((0, 0),) * (len(image) - 2), **rest}
    dtype = rest.pop("dtype", "float32")

    def convolve(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(
            x, k, dimension_numbers=lax.conv_dimension_numbers(image, kernel, orders), **rest
        )

    return exported(convolve, (image, dtype), (kernel, dtype))


def rewritten(text: str, machine: str = "cpu", passes: Sequence[str] = (NAME,), **options: Any) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise", *passes), Options(machine=machine_of(machine), **options))
        return serialise(module, "text").decode()


@pytest.fixture
def at_any_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is legal is rewritten even where it raises the peak, or may be no faster."""
    monkeypatch.setattr(pointwise_convolutions, "_MOST_MORE", 1e6)
    monkeypatch.setattr(pointwise_convolutions, "_LEAST_WITH_GAPS", 64)


@pytest.mark.usefixtures("at_any_price")
@pytest.mark.parametrize("name", PRODUCTS)
def test_what_becomes_a_product_stays_right(name: str) -> None:
    before = program(PRODUCTS[name])
    after = rewritten(before)
    assert CONVOLUTION not in after and after.count("stablehlo.dot_general") == 1
    assert_equal_results(before, after)


@pytest.mark.usefixtures("at_any_price")
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    before = program(LEFT[name])
    assert CONVOLUTION in rewritten(before) and rewritten(before) == rewritten(before, passes=())


def test_what_reads_the_kernel_backwards_or_has_a_sharding_is_left() -> None:
    before = rewritten(program(PRODUCTS["whole image"]), passes=())
    backwards = before.replace("window = {", "window = {reverse = [true, false], ", 1)
    if backwards == before:  # a window without other attributes is printed as nothing
        backwards = before.replace("window = {}", "window = {reverse = [true, false]}", 1)
    sharded = before.replace("{batch_group_count", '{mhlo.sharding = "{replicated}", batch_group_count', 1)
    for text in (backwards, sharded):
        assert text != before
        assert CONVOLUTION in rewritten(text)


def test_another_order_of_sums_must_be_allowed() -> None:
    assert CONVOLUTION in rewritten(program(PRODUCTS["layer"]), reassociate=False)


def test_a_gpu_chooses_for_itself() -> None:
    assert CONVOLUTION in rewritten(program(PRODUCTS["layer"]), "gpu")


@pytest.mark.usefixtures("at_any_price")
def test_the_precision_of_each_side_stays_with_it() -> None:
    after = rewritten(program(PRODUCTS["precise"]))
    assert "precision = [DEFAULT, HIGHEST]" in after, "the kernel is on the left, as its features come first"
    assert "stablehlo.transpose" not in after


@pytest.mark.usefixtures("at_any_price")
def test_layers_and_gradients_need_no_transposes_and_less_memory() -> None:
    def loss(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC)
        return (jnp.sin(y) * y).sum()

    before = exported(jax.grad(loss, (0, 1)), ((8, 32, 32, 64), "float32"), ((1, 1, 64, 96), "float32"))
    after = rewritten(before)
    assert before.count(CONVOLUTION) == after.count("stablehlo.dot_general") == 3
    assert "stablehlo.transpose" not in after
    with new_context() as context:
        peaks = [
            predict(parse_module("<program>", text.encode(), context).module, Options().machine).temp
            for text in (before, after)
        ]
    assert peaks[1] < 0.8 * peaks[0]
    assert_equal_results(before, after)


def test_from_how_many_features_on() -> None:
    for ins, outs, strides, has_gaps in ((7, 9, 1, False), (8, 8, 1, True), (63, 65, 2, False), (64, 64, 2, True)):
        case: Case = ((4, 6, 5, ins), (1, 1, ins, outs), NHWC, {"window_strides": (strides, strides)})

        def layer(x: Any, k: Any, case: Case = case) -> Any:
            return lax.conv_general_dilated(jnp.sin(x), k, padding="VALID", dimension_numbers=NHWC, **case[3])

        after = rewritten(exported(layer, (case[0], "float32"), (case[1], "float32")))
        assert (CONVOLUTION not in after) == has_gaps, (ins, outs, strides)


def test_a_product_that_raises_the_peak_stays_a_convolution_and_others_do_not() -> None:
    """XLA cannot write a ReLU over a product that it reads in another shape, here at the peak."""

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)

    def inception(x: Any, a: Any, b: Any, c: Any, last: Any) -> Any:
        parts = [jax.nn.relu(convolve(x, a)), jax.nn.relu(convolve(jax.nn.relu(convolve(x, b)), c))]
        return convolve(jnp.concatenate(parts, -1)[:, :9, :9], last)

    shapes = [(1, 64, 64, 128), (1, 1, 128, 32), (1, 1, 128, 48), (3, 3, 48, 64), (1, 1, 96, 80)]
    before = exported(inception, *((shape, "float32") for shape in shapes))
    after = rewritten(before)
    assert (after.count(CONVOLUTION), after.count("stablehlo.dot_general")) == (3, 1)
    assert "tensor<96x80xf32>) -> tensor<1x9x9x80xf32>" in after
    assert _peak(after) <= 1.01 * _peak(before)
    assert_equal_results(before, after)


def test_what_xla_writes_twice_next_to_products_does_not_raise_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction does not count it: a residual layer that a product and a convolution read."""

    def block(x: Any, w: Any, v: Any, narrow: Any, wide: Any, last: Any) -> Any:
        def convolve(x: Any, w: Any, strides: int = 1) -> Any:
            return lax.conv_general_dilated(x, w, (strides, strides), "SAME", dimension_numbers=NHWC)

        x = jnp.sin(x)
        before = jax.nn.relu(convolve(x, w) * 2 + convolve(x, v))
        after = jax.nn.relu(convolve(jax.nn.relu(convolve(before, narrow)), wide) + before)
        return convolve(after, last).sum((1, 2)), convolve(after, last[..., :8], 2).sum((1, 2))

    kernels = [(1, 1, 64, 256), (1, 1, 64, 256), (1, 1, 256, 64), (1, 1, 64, 256), (1, 1, 256, 128)]
    text = exported(block, ((4, 32, 32, 64), "float32"), *((shape, "float32") for shape in kernels))
    original, guarded = measure_memory(text).temp, measure_memory(rewritten(text)).temp
    assert guarded <= 1.01 * original
    monkeypatch.setattr(pointwise_convolutions, "_free", lambda timeline, most: {})
    assert measure_memory(rewritten(text)).temp > 1.1 * original, "without the guard"


def test_a_layer_that_raises_the_peak_does_not_keep_its_gradient_from_becoming_a_product() -> None:
    def loss(w: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(jnp.sin(x), w, (1, 1), "VALID", dimension_numbers=NHWC)
        return (jnp.sin(y) * y).sum()

    before = exported(jax.grad(loss), ((1, 1, 64, 96), "float32"), ((8, 32, 32, 64), "float32"))
    after = rewritten(before)
    assert (before.count(CONVOLUTION), after.count(CONVOLUTION)) == (2, 1)
    assert "tensor<64x96xf32>" in after.split("contracting_dims = [0, 1, 2] x [0, 1, 2]")[1].splitlines()[0]
    assert _peak(after) <= 1.01 * _peak(before)
    assert_equal_results(before, after)


def test_a_product_has_the_location_of_its_convolution() -> None:
    with new_context() as context:
        module = parse_module("<program>", program(PRODUCTS["layer"]).encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        [op] = inside_out(module, CONVOLUTION)
        expected = str(op.location)
        run_pipeline(module, (NAME,), Options())
        [made] = inside_out(module, "stablehlo.dot_general")
        assert str(made.location) == expected != "loc(unknown)"


def _peak(text: str) -> int:
    with new_context() as context:
        return predict(parse_module("<program>", text.encode(), context).module, Options().machine).peak


def _random_case(draw: random.Random) -> Case:
    """A convolution of small integers with any strides, dilations, padding and order, most of which are products."""
    spatial = draw.choice((1, 2, 2, 3))
    letters = "WHD"[:spatial]
    image, kernel = {"N": draw.choice((1, 3)), "C": draw.choice((8, 16))}, {"I": 0, "O": draw.choice((8, 9))}
    kernel["I"] = image["C"]
    rest: dict[str, Any] = {"window_strides": [], "rhs_dilation": [], "lhs_dilation": [], "padding": []}
    for letter in letters:
        size, dilation, base = draw.choice((1, 1, 1, 2, 4)), draw.choice((1, 1, 2)), draw.choice((1, 1, 1, 2))
        reach = (size - 1) * dilation + 1
        low, high = (draw.choice((0, 0, 0, -1, -2, 1)) for _ in range(2))
        length = reach + draw.choice((0, 0, 2, 5))
        while (length - 1) * base + 1 + low + high < reach:
            length += 1
        image[letter], kernel[letter] = length, size
        for name, value in (("window_strides", draw.choice((1, 1, 2, 3))), ("rhs_dilation", dilation)):
            rest[name].append(value)
        rest["lhs_dilation"].append(base)
        rest["padding"].append((low, high))
    first, middle, last = ("".join(draw.sample(list(names), len(names))) for names in (image, kernel, image))
    orders = (first, middle, last)
    shapes = (tuple(image[each] for each in orders[0]), tuple(kernel[each] for each in orders[1]))
    # The lists are in the order in which the kernel's order names its spatial dimensions.
    spaces = [letter for letter in orders[1] if letter in letters]
    places = [letters.index(letter) for letter in spaces]
    return *shapes, orders, {name: tuple(each[place] for place in places) for name, each in rest.items()}


def _padded_before(case: Case) -> str:
    """The same program, but what is padded and dropped and between elements is an op of its own."""
    image, kernel, orders, rest = case
    spaces = [orders[0].index(letter) for letter in orders[1] if letter not in "IO"]
    edges = [(0, 0, 0)] * len(image)
    for place, (low, high), base in zip(spaces, rest["padding"], rest["lhs_dilation"], strict=True):
        edges[place] = (low, high, base - 1)
    kept = {name: rest[name] for name in ("window_strides", "rhs_dilation")}

    numbers = lax.conv_dimension_numbers(image, kernel, orders)

    def convolve(x: Any, k: Any) -> Any:
        padded = lax.pad(x, jnp.float32(0), edges)
        return lax.conv_general_dilated(padded, k, padding="VALID", dimension_numbers=numbers, **kept)

    return exported(convolve, (image, "float32"), (kernel, "float32"))


@pytest.mark.usefixtures("at_any_price")
@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions_of_integers_stay_equal(seed: int) -> None:
    draw, count = random.Random(seed), 0
    for number in range(24):
        case = _random_case(draw)
        after = rewritten(program(case))
        if CONVOLUTION in after:
            continue
        count += 1
        numbers = np.random.default_rng(number)
        arrays = [numbers.integers(-4, 5, shape).astype(np.float32) for shape in case[:2]]
        [expected], [found] = run_module(_padded_before(case), arrays), run_module(after, arrays)
        np.testing.assert_array_equal(found, expected, f"{seed}, {number}")
    assert count >= 5
