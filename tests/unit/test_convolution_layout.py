"""Convolutions in loops: which are brought into the order of dimensions of XLA:CPU's fast kernel, and that they stay right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, as_written, machine_of
from exla_opt.memory.peak import predict
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import assert_equal_results

NCHW = ("NCHW", "OIHW", "NCHW")
LINE = {"padding": "SAME", "window_strides": (1,)}
DOUBLE = {"padding": "SAME", "dtype": "float64"}
# Each with the shapes of image and kernel, the orders of dimensions, and the rest.
FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Sequence[str], dict[str, Any]]] = {
    "plane": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": ((1, 1), (2, 0))}),
    "result alone": ((4, 9, 8, 6), (3, 2, 6, 5), ("NHWC", "HWIO", "NCHW"), {"padding": "SAME"}),
    "kernel alone": ((4, 9, 8, 6), (5, 3, 2, 6), ("NHWC", "OHWI", "NHWC"), {"padding": "VALID"}),
    "swapped planes": ((4, 9, 8, 6), (3, 2, 6, 5), ("NWHC", "HWIO", "NHWC"), {"padding": "VALID"}),
    "strides": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": "SAME", "window_strides": (2, 3)}),
    "dilated kernel": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": "SAME", "rhs_dilation": (2, 3)}),
    "dilated image": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": ((1, 2), (0, 0)), "lhs_dilation": (2, 3)}),
    "line": ((4, 6, 30), (5, 6, 3), ("NCW", "OIW", "NCW"), {"padding": "SAME", "window_strides": (1,)}),
    "space": (
        (2, 6, 5, 4, 6),
        (5, 6, 3, 2, 1),
        ("NCDHW", "OIDHW", "NCDHW"),
        {"padding": "SAME", "window_strides": (1,) * 3},
    ),
    "gradient by the kernel": ((6, 9, 8, 4), (6, 9, 8, 5), ("CHWN", "IHWO", "HWNC"), {"padding": ((1, 1), (1, 0))}),
    "kernels of every image": (
        (3, 9, 9, 2),
        (1, 8, 8, 30),
        ("CHWN", "IHWO", "HWNC"),
        {"padding": "VALID", "feature_group_count": 3},
    ),
    "few features, large window": ((4, 9, 9, 2), (4, 8, 8, 3), ("CHWN", "IHWO", "HWNC"), {"padding": "VALID"}),
    "half": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": "SAME", "dtype": "bfloat16"}),
    "half, added up in float32": (
        (6, 9, 8, 4),
        (6, 9, 8, 5),
        ("CHWN", "IHWO", "HWNC"),
        {"padding": ((1, 1), (1, 0)), "dtype": "bfloat16", "preferred_element_type": jnp.float32},
    ),
    "double": ((4, 6, 9, 8), (20, 6, 3, 2), NCHW, {"padding": "SAME", "dtype": "float64", "window_strides": (2, 1)}),
    # XLA's fast kernel reads beyond an image that is cut off, so it is sliced first.
    "negative padding": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": ((-1, 1), (0, -3))}),
    "negative padding of an image with gaps": (
        (4, 6, 9, 8),
        (5, 6, 3, 2),
        NCHW,
        {"padding": ((-3, 1), (2, -2)), "lhs_dilation": (2, 3), "rhs_dilation": (1, 2), "window_strides": (2, 1)},
    ),
}
PLAIN = ("NHWC", "HWIO", "NHWC")
TURNED = ("CHWN", "IHWO", "HWNC")
# The same, and how many convolutions each becomes.
GROUPED: dict[str, tuple[tuple[Any, ...], int]] = {
    "groups": (((4, 16, 9, 8), (8, 8, 3, 2), NCHW, {"padding": ((1, 1), (2, 0)), "feature_group_count": 2}), 2),
    "groups in order": (((4, 9, 8, 24), (3, 2, 8, 12), PLAIN, {"padding": "SAME", "feature_group_count": 3}), 3),
    "groups of a dilated line": (
        ((4, 16, 30), (8, 8, 3), ("NCW", "OIW", "NCW"), {**LINE, "rhs_dilation": (3,), "feature_group_count": 2}),
        2,
    ),
    "groups of images": (((8, 6, 9, 8), (12, 6, 3, 2), NCHW, {"padding": "SAME", "batch_group_count": 2}), 2),
    "groups of images, joined": (((3, 9, 9, 4), (3, 8, 8, 6), TURNED, {"padding": "VALID", "batch_group_count": 2}), 1),
    "double, groups": (((4, 42, 9, 8), (8, 21, 3, 2), NCHW, {**DOUBLE, "feature_group_count": 2}), 2),
    "double, many groups": (((4, 9, 8, 16), (3, 2, 2, 16), PLAIN, {**DOUBLE, "feature_group_count": 8}), 8),
    "double, groups of images": (((4, 2, 9, 8), (40, 2, 3, 2), NCHW, {**DOUBLE, "batch_group_count": 2}), 2),
    "depthwise": (((4, 9, 8, 6), (3, 2, 1, 6), PLAIN, {"padding": "SAME", "feature_group_count": 6}), 0),
    "depthwise, more than one": (
        ((4, 9, 8, 6), (3, 2, 1, 12), PLAIN, {"padding": ((2, -1), (0, 1)), "feature_group_count": 6}),
        0,
    ),
    "depthwise, strides and dilation": (
        (
            (4, 9, 8, 6),
            (3, 2, 1, 6),
            PLAIN,
            {"padding": "VALID", "window_strides": (2, 3), "rhs_dilation": (2, 1), "feature_group_count": 6},
        ),
        0,
    ),
    "depthwise, dilated image": (
        (
            (4, 9, 8, 6),
            (3, 2, 1, 6),
            PLAIN,
            {"padding": ((1, 2), (0, 1)), "lhs_dilation": (2, 3), "feature_group_count": 6},
        ),
        0,
    ),
    "depthwise, half": (
        ((4, 9, 8, 6), (3, 2, 1, 6), PLAIN, {"padding": "SAME", "dtype": "bfloat16", "feature_group_count": 6}),
        0,
    ),
    "depthwise, double": (((4, 6, 9, 8), (12, 1, 3, 2), NCHW, {**DOUBLE, "feature_group_count": 6}), 0),
    "depthwise, space": (
        (
            (2, 5, 4, 6, 3),
            (3, 2, 1, 1, 6),
            ("NDHWC", "DHWIO", "NDHWC"),
            {"padding": "SAME", "window_strides": (1,) * 3, "feature_group_count": 3},
        ),
        0,
    ),
    "depthwise, swapped planes": (
        ((4, 9, 8, 6), (3, 2, 1, 6), ("NWHC", "HWIO", "NHWC"), {"padding": "SAME", "feature_group_count": 6}),
        0,
    ),
}
LEFT: dict[str, tuple[tuple[int, ...], tuple[int, ...], Sequence[str], dict[str, Any]]] = {
    "in order": ((4, 9, 8, 6), (3, 2, 6, 5), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME"}),
    "few features": ((4, 3, 9, 8), (7, 3, 3, 2), NCHW, {"padding": "SAME"}),
    "small groups": ((4, 16, 9, 8), (6, 8, 3, 2), NCHW, {"padding": "SAME", "feature_group_count": 2}),
    "depthwise": ((4, 6, 9, 8), (6, 1, 3, 2), NCHW, {"padding": "SAME", "feature_group_count": 6}),
    "batch groups": ((4, 6, 9, 8), (6, 6, 3, 2), NCHW, {"padding": "SAME", "batch_group_count": 2}),
    "double": ((4, 6, 9, 8), (5, 6, 3, 2), NCHW, {"padding": "SAME", "dtype": "float64"}),
    "padding that drops all of the image": ((4, 6, 3, 8), (5, 6, 3, 2), NCHW, {"padding": ((-4, 4), (0, 0))}),
}


def looped(form: tuple[Any, ...]) -> str:
    """A program that convolves three images in a scan."""
    image, kernel, orders, rest = form
    rest = {"window_strides": (1, 1), **rest}
    dtype = rest.pop("dtype", "float32")

    def convolve(images: Any, weights: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            y = lax.conv_general_dilated(x, weights, dimension_numbers=tuple(orders), **rest)
            return jnp.maximum(total, y.max().astype(dtype)), y

        return lax.scan(body, jnp.zeros((), dtype), images)

    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct((3, *image), dtype), jax.ShapeDtypeStruct(kernel, dtype)]
        return str(export.export(jax.jit(convolve))(*specs).mlir_module())


def rewritten(text: str, machine: str = "cpu", passes: Sequence[str] = ("normalise", "convolution-layout")) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, Options(machine=machine_of(machine)))
        return serialise(module, "text").decode()


def order_of(text: str) -> list[str]:
    return re.findall(r"dim_numbers = (\S+x\S+->\[[^\]]*\])", text.replace(", ", ","))


@pytest.mark.parametrize("name", FORMS)
def test_what_is_turned_stays_right(name: str) -> None:
    before = looped(FORMS[name])
    after = rewritten(before)
    spatial = len(FORMS[name][0]) - 2
    places = ",".join(map(str, range(spatial)))
    assert order_of(after) == [f"[b,{places},f]x[{places},i,o]->[b,{places},f]"]
    assert "stablehlo.transpose" in after
    assert_equal_results(before, after)
    assert rewritten(after) == after, "a second run changes it"


@pytest.mark.parametrize("name", GROUPED)
def test_groups_and_lines_stay_right(name: str) -> None:
    form, count = GROUPED[name]
    before = looped(form)
    after = rewritten(before)
    assert after.count("stablehlo.convolution") == count
    assert not re.search(r"group_count = ([2-9]|1\d)", after) or name.endswith("joined")
    assert_equal_results(before, after)
    assert rewritten(after) == after, "a second run changes it"


def test_a_line_of_doubles_is_a_plane_of_one_row() -> None:
    line = ((4, 6, 30), (20, 6, 3), ("NCW", "OIW", "NCW"), {**LINE, "rhs_dilation": (2,), "dtype": "float64"})
    before = looped(line)
    after = rewritten(before)
    assert order_of(after) == ["[b,0,1,f]x[0,1,i,o]->[b,0,1,f]"]
    assert_equal_results(before, after)
    assert rewritten(after) == after, "a second run changes it"


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    before = looped(LEFT[name])
    assert rewritten(before) == rewritten(before, passes=["normalise"])


def test_another_order_of_sums_must_be_allowed() -> None:
    with new_context() as context:
        module = parse_module("<program>", looped(FORMS["plane"]).encode(), context).module
        run_pipeline(module, ["normalise", "convolution-layout"], Options(reassociate=False))
        assert order_of(serialise(module, "text").decode()) == ["[b,f,0,1]x[o,i,0,1]->[b,f,0,1]"]


def test_a_gpu_chooses_for_itself() -> None:
    before = looped(FORMS["plane"])
    assert rewritten(before, "gpu") == rewritten(before, "gpu", passes=["normalise"])


def test_a_copy_over_the_threshold_is_made_where_the_peak_stays_within_the_limit() -> None:
    before = looped(FORMS["plane"])

    def order_with(threshold: int, limit: int | None) -> list[str]:
        with new_context() as context:
            module = parse_module("<program>", before.encode(), context).module
            options = Options(size_threshold=threshold, memory_limit=limit)
            run_pipeline(module, ["normalise", "convolution-layout"], options)
            return order_of(serialise(module, "text").decode())

    slow, fast = ["[b,f,0,1]x[o,i,0,1]->[b,f,0,1]"], order_of(rewritten(before))
    largest = 4 * max(prod(FORMS["plane"][0]), prod(FORMS["plane"][1]))
    assert order_with(largest, None) == fast
    assert order_with(largest // 2, 10**9) == fast
    assert order_with(largest // 2, None) == slow, "the peak would rise"
    assert order_with(largest // 5, 10**9) == slow, "more than a few slices"


def test_a_convolution_in_a_loop_takes_long_unless_its_order_has_a_fast_kernel() -> None:
    before = looped(((8, 16, 32, 32), (16, 16, 3, 3), NCHW, {"padding": "SAME"}))
    with new_context() as context:
        texts = rewritten(before, passes=["normalise"]), rewritten(before)
        slow, fast = (parse_module("<program>", text.encode(), context).module for text in texts)
        times = [read_timeline(module, as_written(CPU)).seconds for module in (slow, fast)]
        assert times[0] > 3 * times[1]


def test_its_copies_count_for_what_is_recomputed() -> None:
    def loss(weights: Sequence[Any], image: Any) -> Any:
        for kernel in weights:
            order = ("NHWC", "HWIO", "NHWC")
            image = jnp.tanh(lax.conv_general_dilated(image[None], kernel, (1, 1), "SAME", dimension_numbers=order)[0])
        return (image**2).sum()

    def gradients(weights: Sequence[Any], images: Any) -> Any:
        each = lax.map(lambda image: jax.grad(loss)(weights, image), images)
        return jax.tree.map(lambda stacked: stacked.sum(0), each)

    weights = [jax.ShapeDtypeStruct((3, 3, 8, 8), jnp.float32)] * 8
    images = jax.ShapeDtypeStruct((4, 64, 64, 8), jnp.float32)
    before = export.export(jax.jit(gradients))(weights, images).mlir_module()
    unsplit = Options(size_threshold=2**62)
    with new_context() as context:
        stored, module = (parse_module("<program>", before.encode(), context).module for _ in range(2))
        run_pipeline(stored, DEFAULT_PASSES, unsplit)
        memory = predict(stored, CPU)
        limit = memory.peak - memory.temp // 4
        remarks = run_pipeline(module, DEFAULT_PASSES, replace(unsplit, memory_limit=limit)).remarks
        assert "EX013" in {remark.code for remark in remarks}
        assert predict(module, CPU).peak <= limit
        after = serialise(module, "text").decode()
    assert order_of(after) != order_of(before)
    assert_equal_results(before, after)
