"""Convolutions whose kernel is larger than the image: as a product of matrices, executed before and after."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, as_written
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.convolutions import rewritten, temp_of
from tests.execute import assert_equal_results

PLAIN, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
PADDED = {"padding": ((1, 1), (1, 1))}
ROOMY = Options(machine=CPU, memory_limit=10**9)
IMAGE, KERNEL = (4, 2, 2, 24), (3, 3, 24, 32)
Form = tuple[tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]
FORMS: dict[str, Form] = {
    "plane": (IMAGE, KERNEL, PLAIN, PADDED),
    "other order": ((4, 24, 2, 2), (32, 24, 3, 3), NCHW, PADDED),
    "pixel": ((4, 1, 1, 24), KERNEL, PLAIN, PADDED),
    "reversed kernel": (IMAGE, KERNEL, PLAIN, {**PADDED, "reversed": (0, 1)}),
    "kernel reversed in one dimension": ((4, 1, 3, 24), KERNEL, PLAIN, {**PADDED, "reversed": (1,)}),
    "reversed features": (IMAGE, KERNEL, PLAIN, {**PADDED, "reversed": (0, 2)}),
    "strides": ((4, 2, 3, 24), KERNEL, PLAIN, {**PADDED, "window_strides": (2, 1)}),
    "dilated kernel": (IMAGE, KERNEL, PLAIN, {"padding": ((2, 2), (1, 2)), "rhs_dilation": (2, 1)}),
    "dilated image": (IMAGE, KERNEL, PLAIN, {"padding": ((1, 2), (1, 0)), "lhs_dilation": (2, 1)}),
    "cut off": ((4, 2, 5, 24), (4, 3, 24, 64), PLAIN, {"padding": ((3, 2), (1, -1))}),
    "line": ((4, 24, 2), (32, 24, 3), ("NCW", "OIW", "NCW"), {"padding": ((1, 1),), "window_strides": (1,)}),
    "space": (
        (2, 2, 2, 1, 24),
        (3, 3, 3, 24, 32),
        ("NDHWC", "DHWIO", "NDHWC"),
        {"padding": ((1, 1),) * 3, "window_strides": (1,) * 3},
    ),
    "half": (IMAGE, KERNEL, PLAIN, {**PADDED, "dtype": "bfloat16"}),
    "half, added up in float32": (
        IMAGE,
        KERNEL,
        PLAIN,
        {**PADDED, "dtype": "bfloat16", "preferred_element_type": jnp.float32},
    ),
    "double, precise": (IMAGE, KERNEL, PLAIN, {**PADDED, "dtype": "float64", "precision": "highest"}),
}
LEFT: dict[str, Form] = {
    "few features": ((4, 2, 2, 16), (3, 3, 16, 31), PLAIN, PADDED),
    "no larger than the image": ((4, 3, 3, 24), KERNEL, PLAIN, PADDED),
    "one place": ((4, 3, 3, 24), KERNEL, PLAIN, {"padding": "VALID"}),
    "groups": (IMAGE, (3, 3, 12, 64), PLAIN, {**PADDED, "feature_group_count": 2}),
    "patches larger than the kernel": ((16, 2, 2, 24), KERNEL, PLAIN, PADDED),
    "a kernel that XLA need not reverse": (IMAGE, KERNEL, PLAIN, {**PADDED, "reversed": (0, 1)}),
}


def program(form: Form) -> str:
    image, kernel, orders, rest = form
    rest = {"window_strides": (1, 1), **rest}
    dtype, flipped = rest.pop("dtype", "float32"), rest.pop("reversed", ())

    def convolve(x: Any, weights: Any) -> Any:
        turned = lax.rev(weights, flipped) if flipped else weights
        return lax.conv_general_dilated(x, turned, dimension_numbers=orders, **rest)

    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct(shape, dtype) for shape in (image, kernel)]
        return str(export.export(jax.jit(convolve))(*specs).mlir_module())


def seconds_of(text: str) -> float:
    with new_context() as context:
        return read_timeline(parse_module("<program>", text.encode(), context).module, as_written(CPU)).seconds


@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_larger_than_the_image_is_a_factor_of_a_product(name: str) -> None:
    before = program(FORMS[name])
    after = rewritten(before, ROOMY)
    assert "stablehlo.convolution" not in after and "stablehlo.dot_general" in after
    assert ("stablehlo.reverse" in after) == (name == "reversed features")
    assert_equal_results(before, after)
    assert rewritten(after, ROOMY) == after, "a second run changes it"


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    after = rewritten(program(LEFT[name]))
    assert "stablehlo.convolution" in after and "stablehlo.dot_general" not in after


def test_patches_larger_than_the_kernel_are_written_where_the_limit_leaves_room() -> None:
    before = program(LEFT["patches larger than the kernel"])
    after = rewritten(before, ROOMY)
    assert "stablehlo.convolution" not in after
    assert_equal_results(before, after)


@pytest.mark.parametrize("name", ["plane", "pixel", "strides", "dilated kernel", "dilated image", "half"])
def test_the_reversed_copy_of_the_kernel_counts(name: str) -> None:
    image, kernel, orders, rest = FORMS[name]
    # A kernel far larger than the rest.
    before = program(((*image[:-1], 96), (*kernel[:-2], 96, 128), orders, rest))
    for text in (before, rewritten(before, ROOMY)):
        predicted, compiled = temp_of(text)
        assert compiled <= predicted * 1.02 + 1_000
        assert predicted <= compiled * 1.6 + 10_000
    assert temp_of(before)[1] >= 9 * 96 * 128 * 4


@pytest.mark.parametrize("flipped", [(0, 1), (0,), (0, 1, 3)])
def test_a_reversed_kernel_is_reversed_once_more_or_not_at_all(flipped: tuple[int, ...]) -> None:
    predicted, compiled = temp_of(program(((4, 2, 2, 96), (3, 3, 96, 128), PLAIN, {**PADDED, "reversed": flipped})))
    assert predicted == compiled == (0 if flipped == (0, 1) else 9 * 96 * 128 * 4)


def test_windows_that_are_said_not_to_be_reversed_are_not() -> None:
    said = "window = {pad = [[1, 1], [1, 1]]"
    before = program(FORMS["plane"])
    text = before.replace(said, f"{said}, reverse = [false, false]")
    assert text != before and temp_of(text) == temp_of(before)
    assert temp_of(text)[0] >= 4 * 9 * 24 * 32


def test_a_kernel_that_a_loop_computes_is_still_cut() -> None:
    """The reversed copy is that of the finished program: no kernel of a loop is taken for one that XLA fuses."""

    def layers(x: Any, kernels: Any) -> Any:
        def layer(x: Any, kernel: Any) -> tuple[Any, None]:
            made = jnp.tanh(kernel * 2)
            return lax.conv_general_dilated(x, made, (1, 1), PADDED["padding"], dimension_numbers=PLAIN), None

        return lax.scan(layer, x, kernels)[0]

    shapes = ((8, 2, 2, 128), (3, 3, 3, 128, 128))
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    before = str(export.export(jax.jit(layers))(*specs).mlir_module())
    with new_context() as context:
        module = parse_module("<program>", before.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=100_000, split_size=100_000))
        after = serialise(module, "text").decode()
    assert temp_of(after)[1] * 2 < temp_of(before)[1]
    assert_equal_results(before, after)


def test_a_kernel_larger_than_the_image_takes_long() -> None:
    before = program(((16, 2, 2, 256), (3, 3, 256, 256), PLAIN, PADDED))
    assert seconds_of(before) > 5 * seconds_of(rewritten(before))
