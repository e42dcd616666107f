"""Means that a loop reads while it finds them, and sums that another sum of their loop is multiplied with behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import compare
from tests.execute import assert_equal_results, run_module
from tests.programs.model import Program, export_program, gradient

Tensor = Any
Function = Callable[..., Any]
ROWS, LENGTH = 16, 3000
SPECS = (f"{ROWS}x8xf32", f"{LENGTH}x8xf32")
OPTIONS = Options(size_threshold=10_000, split_size=10_000)


def rewrite(text: str, options: Options = OPTIONS) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, options)
        return serialise(module, "text").decode()


def loops(text: str) -> int:
    return text.count("stablehlo.while")


def export(function: Function, *specs: str) -> str:
    return export_program(Program("case", function, " ".join(specs)))


def scores(x: Tensor, y: Tensor) -> Tensor:
    return jnp.tanh(x @ y.T) + 3


def about(x: Tensor, centre: Tensor) -> Tensor:
    return ((x - centre) ** 2).sum(1)


def normalised(x: Tensor, y: Tensor) -> Tensor:
    """The sums of the gradient of a normalisation, which wait for mean and variance, and one for another."""
    values = scores(x, y)
    mean, variance = values.mean(1, keepdims=True), values.var(1, keepdims=True)
    return (jnp.sin((values - mean) * lax.rsqrt(variance + 1e-3)) @ y) ** 2


def shared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    values = scores(x, y)
    first = values.sum(1)
    return first, (values**2 * jnp.exp(-first / LENGTH)[:, None]).sum(1)


def batch(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every channel, over what is cut and two dimensions more."""
    images = jnp.sin(y.reshape(-1, 10, 2, 4))
    return images.mean((0, 1, 2)), images.var((0, 1, 2)) + 0 * x[0, :4]


ONE_LOOP: dict[str, Function] = {
    "variance": lambda x, y: scores(x, y).var(1),
    "deviation": lambda x, y: jnp.std(scores(x, y), 1, ddof=1),
    "both": lambda x, y: (scores(x, y).mean(1), scores(x, y).var(1)),
    "columns": lambda x, y: scores(y, x).var(0),
    "all": lambda x, y: scores(x, y).var(),
    "times the inverse": lambda x, y: about(scores(x, y), scores(x, y).sum(1, keepdims=True) * (1 / LENGTH)),
    "scaled": lambda x, y: (2 * (scores(x, y) - scores(x, y).mean(1, keepdims=True)) ** 2 / LENGTH).sum(1),
    "shared": shared,
    "batch": batch,
}


def multiplied_and_subtracted(x: Tensor, y: Tensor, centre: Function) -> tuple[Tensor, Tensor]:
    """What one sum is multiplied with behind its loop, another one subtracts."""
    values = scores(x, y)
    middle = centre(values)
    total = (values * middle).sum(1, keepdims=True) / LENGTH
    return total, ((values - middle) ** 2 * total).sum(1)


SEVERAL: dict[str, Function] = {
    "multiplied and subtracted": lambda x, y: multiplied_and_subtracted(x, y, lambda s: s.mean(1, keepdims=True)),
    "another centre": lambda x, y: about(scores(x, y), scores(x, y).sum(1, keepdims=True) / (LENGTH - 1)),
    "the mean of others": lambda x, y: about(scores(x, y), jnp.sin(scores(x, y)).mean(1, keepdims=True)),
    "cubes": lambda x, y: ((scores(x, y) - scores(x, y).mean(1, keepdims=True)) ** 3).sum(1),
    "weighted": lambda x, y: (
        (scores(x, y) - scores(x, y).mean(1, keepdims=True)) ** 2 * jnp.cos(jnp.arange(LENGTH))
    ).sum(1),
    "of two": lambda x, y: (
        (scores(x, y) - scores(x, y).mean(1, keepdims=True)) * (jnp.sin(scores(x, y)) - scores(x, y).mean(1)[:, None])
    ).sum(1),
    "a function of the mean": lambda x, y: about(scores(x, y), jnp.sqrt(scores(x, y).mean(1, keepdims=True))),
    "shared by a part": lambda x, y: jnp.tanh(scores(x, y) * scores(x, y).sum(1)[:, None]).sum(1),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", ONE_LOOP)
def test_a_row_is_read_once(name: str, dtype: str) -> None:
    with jax.enable_x64(dtype == "f64"):
        text = export(ONE_LOOP[name], f"{ROWS}x8x{dtype}", f"{LENGTH}x8x{dtype}")
    rewritten = rewrite(text, replace(OPTIONS, split_size=5_000))
    if dtype == "f32":
        assert loops(rewritten) == 1
    assert_equal_results(text, rewritten)


@pytest.mark.parametrize("name", SEVERAL)
def test_what_is_about_another_number_waits(name: str) -> None:
    text = export(SEVERAL[name], *SPECS)
    rewritten = rewrite(text)
    assert loops(rewritten) > 1
    assert_equal_results(text, rewritten)


def test_the_mean_of_a_half_is_known_where_a_slice_has_whole_rows() -> None:
    text = export(lambda x, y: about(scores(x, y), scores(x, y)[:, : LENGTH // 2].mean(1, keepdims=True)), *SPECS)
    rewritten = rewrite(text)
    assert loops(rewritten) == 1
    assert f"tensor<1x{LENGTH}xf32>" in rewritten
    assert_equal_results(text, rewritten)


def masked_softmax(x: Tensor, y: Tensor) -> Tensor:
    """Of the last row all is masked: 0, where its sum is 0 as well."""
    kept = jnp.arange(ROWS)[:, None] < ROWS - 1
    powers = jnp.where(kept, jnp.exp(scores(x, y)), 0)
    return jnp.where(kept, powers / powers.sum(1, keepdims=True), 0) @ y


def multiplied_by_the_largest(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    values = scores(x, y)
    highest = values.max(1, keepdims=True)
    total = (values * highest).sum(1, keepdims=True) / LENGTH
    return total, (jnp.exp(values - highest) * total).sum(1)


@pytest.mark.parametrize("function", [masked_softmax, multiplied_by_the_largest])
def test_what_is_left_out_or_read_in_two_ways_stays(function: Function) -> None:
    text = export(function, *SPECS)
    assert_equal_results(text, rewrite(text))


@pytest.mark.parametrize("function", [*ONE_LOOP.values(), normalised])
def test_gradients(function: Function) -> None:
    text = export(gradient(function), *SPECS)
    assert_equal_results(text, rewrite(text))


def test_the_mean_of_columns_is_none_of_rows() -> None:
    def function(x: Tensor) -> Tensor:
        square = jnp.tanh(x @ jnp.sin(x).T)
        return ((square - square.mean(0)[:, None]) ** 2).sum(0)

    text = export(function, "200x8xf32")
    rewritten = rewrite(text)
    assert loops(rewritten) == 2
    assert_equal_results(text, rewritten)


def test_an_order_that_must_stay_is_not_split_along_its_sums() -> None:
    rewritten = rewrite(export(ONE_LOOP["variance"], *SPECS), replace(OPTIONS, reassociate=False))
    summed = re.findall(r"across dimensions = \[1\] : \(tensor<\d+x(\d+)xf32>", rewritten)
    assert summed and set(summed) == {str(LENGTH)}


def far_rows() -> Tensor:
    """Rows far from zero, rising, falling, with a step and with outliers at the start and at the end."""
    rows = np.random.default_rng(0).standard_normal((ROWS, LENGTH))
    rows[1] += 1e4
    rows[2] += np.linspace(0, 1e4, LENGTH)
    rows[3] -= np.linspace(0, 1e4, LENGTH)
    rows[4, 1500:] += 1e3
    rows[5, 0], rows[6, -1] = 1e6, 1e6
    rows[7] = 3
    rows[8] *= 1e-18
    rows[9] *= 1e15
    return rows.astype(np.float32)


def special_rows() -> Tensor:
    """The same with infinities and NaN at the start, in the middle and at the end, and sums that are infinite."""
    rows = far_rows()
    rows[10, 0], rows[11, 2000], rows[12, -1] = np.inf, -np.inf, np.nan
    rows[13] = 3e38
    rows[14] = 1e10
    return rows


VARIANCE = export(lambda x, y: (x + y).var(1), f"{ROWS}x{LENGTH}xf32", f"1x{LENGTH}xf32")


def test_rows_far_from_zero_keep_their_digits() -> None:
    rewritten = rewrite(VARIANCE)
    assert loops(rewritten) == 1
    rows = far_rows()
    [actual] = run_module(rewritten, [rows, np.zeros((1, LENGTH), np.float32)])
    np.testing.assert_allclose(actual, rows.astype(np.float64).var(1), rtol=1e-4, atol=1e-36)


def test_special_values_stand_where_they_stood() -> None:
    arrays = [special_rows(), np.zeros((1, LENGTH), np.float32)]
    [expected], [actual] = (run_module(text, arrays) for text in (VARIANCE, rewrite(VARIANCE)))
    assert np.isnan(expected).any() and np.isinf(expected).any()
    comparison = compare(expected, actual)
    assert comparison.passed, comparison.problem


@pytest.mark.parametrize(("scale", "weight"), [(1e22, 1e-21), (1e-18, 1e19), (1.0, 1e-3)])
def test_squares_are_scaled_first(scale: float, weight: float) -> None:
    text = export(
        lambda x, y: (((x + y) - (x + y).mean(1, keepdims=True)) * weight) ** 2 @ jnp.ones(LENGTH),
        f"{ROWS}x{LENGTH}xf32",
        f"1x{LENGTH}xf32",
    )
    rows = np.random.default_rng(0).standard_normal((ROWS, LENGTH)) * scale
    arrays = [rows.astype(np.float32), np.zeros((1, LENGTH), np.float32)]
    [expected], [actual] = run_module(text, arrays), run_module(rewrite(text), arrays)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e20, 1.0, 1e-22])
def test_what_a_norm_keeps_finite_stays_so(scale: float) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        values = x + y
        return ((values / jnp.abs(values).max(1, keepdims=True)) ** 2).sum(1)

    text = export(function, f"{ROWS}x{LENGTH}xf32", f"1x{LENGTH}xf32")
    rows = np.random.default_rng(0).standard_normal((ROWS, LENGTH)) * scale
    arrays = [rows.astype(np.float32), np.zeros((1, LENGTH), np.float32)]
    [expected], [actual] = run_module(text, arrays), run_module(rewrite(text), arrays)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_batch_normalisation_takes_one_loop_for_each_layer_and_direction() -> None:
    """Mean and variance; the loss; the sums of the gradient, of which one waits for the variance's; the weights'."""

    def loss(images: Tensor, kernel: Tensor) -> Tensor:
        x = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3)
        return jnp.tanh(x @ jnp.cos(kernel[0, 0].T)).sum()  # which no channel is alone in

    text = export(jax.grad(loss, 1), "16x24x24x3xf32", "3x3x3x8xf32")
    rewritten = rewrite(text, replace(OPTIONS, size_threshold=40_000, split_size=40_000))
    assert loops(rewritten) == 3
    assert_equal_results(text, rewritten)
