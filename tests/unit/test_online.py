"""Maxima that a loop reads while it finds them: softmaxes and sums of exponentials in one loop along their rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compare import compare, default_tolerance
from tests.execute import assert_equal_results, run_module
from tests.programs.model import Program, export_program, gradient

Tensor = Any
Function = Callable[..., Any]
ROWS, LENGTH = 16, 3000
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
    return x @ y.T


def softmax_of(x: Tensor) -> Tensor:
    """Without a guard of the maximum."""
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def masked(x: Tensor, y: Tensor) -> Tensor:
    return jnp.where(jnp.arange(LENGTH) < 1000, scores(x, y), -jnp.inf)


def dropped(x: Tensor, y: Tensor) -> Tensor:
    kept = jax.random.bernoulli(jax.random.key(0), 0.9, (1, LENGTH))
    return jnp.where(kept, jax.nn.softmax(scores(x, y)), 0) @ y


def of_columns(x: Tensor, y: Tensor) -> Tensor:
    weights = jax.nn.softmax(scores(y, x), axis=0)
    return jnp.einsum("ji,jk->ki", weights, y)


def heads(x: Tensor, y: Tensor) -> Tensor:
    x, y = x.reshape(4, 4, 8), jnp.stack([y, 2 * y, -y, jnp.sin(y)], 1)
    weights = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", x, y))
    return jnp.einsum("hqk,khd->qhd", weights, y)


def moments(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three sums below one maximum, one of them of no exponential."""
    values = scores(x, y)
    weights = jax.nn.softmax(values)
    return weights @ y, (weights * jnp.cos(values)).sum(1), jnp.tanh(values).sum(1)


def above(x: Tensor) -> Tensor:
    """The sum of exponentials below a maximum, where that is positive."""
    highest = x.max(1, keepdims=True)
    return jnp.where(highest > 0, jnp.exp(x - highest), 0).sum(1)


ONE_LOOP: dict[str, Function] = {
    "logsumexp": lambda x, y: jax.nn.logsumexp(scores(x, y), -1),
    "logsumexp of masked": lambda x, y: jax.nn.logsumexp(masked(x, y), -1),
    "softmax": lambda x, y: jax.nn.softmax(scores(x, y)) @ y,
    "softmax without a guard": lambda x, y: softmax_of(scores(x, y)) @ y,
    "softmax of masked": lambda x, y: jax.nn.softmax(masked(x, y)) @ y,
    "columns": of_columns,
    "moments": moments,
}
# In one loop each, with others: of the random bits, along the rows.
ALSO: dict[str, Function] = {
    "dropout": dropped,
    "weighted": lambda x, y: jax.nn.logsumexp(scores(x, y), -1, b=jnp.cos(jnp.arange(LENGTH))),
}
SEVERAL: dict[str, Function] = {
    "the sum goes on": lambda x, y: jnp.log(jax.nn.softmax(scores(x, y)) + 1e-3).sum(1),
    "squares": lambda x, y: (jax.nn.softmax(scores(x, y)) ** 2).sum(1),
    "the gap to the maximum": lambda x, y: (scores(x, y).max(1, keepdims=True) - scores(x, y)).sum(1),
    "times the maximum": lambda x, y: softmax_of(scores(x, y)) * scores(x, y).max(1, keepdims=True) @ y,
    "where it is large": lambda x, y: above(scores(x, y)),
    "half of the maximum": lambda x, y: jnp.exp(scores(x, y) - scores(x, y).max(1, keepdims=True) / 2).sum(1),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", [*ONE_LOOP, *ALSO])
def test_a_row_is_read_once(name: str, dtype: str) -> None:
    with jax.enable_x64(dtype == "f64"):
        text = export((ONE_LOOP | ALSO)[name], f"{ROWS}x8x{dtype}", f"{LENGTH}x8x{dtype}")
    rewritten = rewrite(text, replace(OPTIONS, split_size=5_000))
    if dtype == "f32":
        assert "stablehlo.minimum" in rewritten
    if dtype == "f32" and name in ONE_LOOP:
        assert loops(rewritten) == 1
    tolerance = default_tolerance(np.dtype(jnp.bfloat16)) if dtype == "bf16" else None
    assert_equal_results(text, rewritten, tolerance=tolerance)


@pytest.mark.parametrize("name", SEVERAL)
def test_what_needs_all_of_the_maximum_waits_for_it(name: str) -> None:
    text = export(SEVERAL[name], f"{ROWS}x8xf32", f"{LENGTH}x8xf32")
    rewritten = rewrite(text)
    assert loops(rewritten) > 1
    assert_equal_results(text, rewritten)


@pytest.mark.parametrize("function", [*ONE_LOOP.values(), *ALSO.values(), heads])
def test_gradients(function: Function) -> None:
    text = export(gradient(function), f"{ROWS}x8xf32", f"{LENGTH}x8xf32")
    assert_equal_results(text, rewrite(text))


def test_an_order_that_must_stay_is_not_split_along_its_sums() -> None:
    text = export(ONE_LOOP["logsumexp"], f"{ROWS}x8xf32", f"{LENGTH}x8xf32")
    rewritten = rewrite(text, replace(OPTIONS, reassociate=False))
    summed = re.findall(r"across dimensions = \[1\] : \(tensor<\d+x(\d+)xf32>", rewritten)
    assert summed and set(summed) == {str(LENGTH)}


def special_rows() -> Tensor:
    """Rows with infinities and NaN at the start, in the middle or everywhere, rising, falling, and of extreme numbers."""
    rows = np.random.default_rng(0).standard_normal((ROWS, LENGTH)) * 20
    rows[1, :] = -np.inf
    rows[2, :1500] = -np.inf
    rows[3, 10] = np.inf
    rows[4, 2500] = np.nan
    rows[5, [100, 2000]] = np.inf, -np.inf
    rows[6] -= 500
    rows[7] += 500
    rows[8, :-1] = -np.inf
    rows[9] = np.linspace(-1e4, 1e4, LENGTH)
    rows[10] = np.linspace(1e4, -1e4, LENGTH)
    rows[11], rows[12] = -3e38, 3e38
    rows[13, 1500:] = -np.inf
    return rows


SUMS: dict[str, Function] = {
    "guarded": lambda x: jax.nn.logsumexp(x, -1),
    "unguarded": lambda x: jnp.exp(x - x.max(-1, keepdims=True)).sum(-1),
    "divided": lambda x: (softmax_of(x) * jnp.cos(jnp.arange(LENGTH))).sum(-1),
}


@pytest.mark.parametrize("name", SUMS)
def test_special_values_stand_where_they_stood(name: str) -> None:
    text = export(lambda x, y: SUMS[name](x + y), f"{ROWS}x{LENGTH}xf32", f"1x{LENGTH}xf32")
    rewritten = rewrite(text)
    assert loops(rewritten) == 1
    arrays = [special_rows().astype(np.float32), np.zeros((1, LENGTH), np.float32)]
    for expected, actual in zip(run_module(text, arrays), run_module(rewritten, arrays), strict=True):
        comparison = compare(expected, actual)
        assert comparison.passed, comparison.problem


def finite_maximum(x: Tensor, mask: Tensor) -> Tensor:
    highest = x.max(1, keepdims=True)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return jnp.where(mask > 0, jnp.exp(x - highest), 0.0).sum(1)


def below_another(x: Tensor, other: Tensor) -> Tensor:
    """Both are big, and made of one tensor, so that one loop could make them."""
    ones = jnp.sign(jnp.cos(other[:, :1] * x) ** 2 + 1)
    return jnp.exp((other[:, :1] + 150) * ones - (x * ones).max(1, keepdims=True)).sum(1)


def maximum_of_masked(x: Tensor, mask: Tensor) -> Tensor:
    highest = jnp.where(mask > 0, x, -jnp.inf).max(1, keepdims=True)
    return jnp.exp(x - highest).sum(1)


def both_masked(x: Tensor, mask: Tensor) -> Tensor:
    highest = jnp.where(mask > 0, x, -jnp.inf).max(1, keepdims=True)
    return jnp.where(mask > 0, jnp.exp(x - highest), 0).sum(1)


def _large_at_the_end(largest: float) -> tuple[Tensor, Tensor]:
    """Rows of 5 or so, of which the last number but one is so large, and a mask that leaves it out."""
    x = np.random.default_rng(0).integers(4, 7, (3, 4001)).astype(np.float32)
    x[:, -2] = largest
    mask = np.ones_like(x)
    mask[:, -2] = 0
    return x, mask


def _rising() -> tuple[Tensor, Tensor]:
    """What is summed is far above the maximum of all but the last tile, where the mask leaves that."""
    x = np.full((3, 4001), 100, np.float32)
    x[:, 0], x[:, -1] = 1, 120
    return x, (np.arange(4001) % 4000 == 0) + np.zeros_like(x)


def _above() -> tuple[Tensor, Tensor]:
    x = np.zeros((3, 4001), np.float32)
    x[:, -1] = 160
    return x, np.zeros_like(x)


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (finite_maximum, _large_at_the_end(np.inf)),
        (both_masked, _rising()),
        (maximum_of_masked, _rising()),
        (below_another, _above()),
    ],
    ids=["infinite where masked", "masked alike", "of what is masked", "of something else"],
)
def test_numbers_above_the_maximum_so_far(function: Function, arrays: tuple[Tensor, Tensor]) -> None:
    text = export(lambda x, y: function(x * jnp.sign(x * x + 1), y), "3x4001xf32", "3x4001xf32")
    rewritten = rewrite(text, Options(size_threshold=20_000, split_size=10_000))
    assert loops(rewritten) >= 1
    for expected, actual in zip(run_module(text, arrays), run_module(rewritten, arrays), strict=True):
        comparison = compare(expected, actual)
        assert comparison.passed, comparison.problem
