"""Loops that vmap makes of loops that run until they are done: cut into tiles that stop on their own, executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import run_module

Array = Any
_OPTIONS = Options(size_threshold=30_000, split_size=8_000)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, np.float32) + np.float32(0.1)


def root(a: Array) -> tuple[Array, Array]:
    """By Newton's method, and the steps that it took."""

    def go_on(carry: tuple[Array, Array]) -> Array:
        x, step = carry
        return (jnp.abs(x * x - a) > 1e-5 * a) & (step < 50)

    return lax.while_loop(go_on, lambda carry: ((carry[0] + a / carry[0]) / 2, carry[1] + 1), (a, 0))


def roots(a: Array, b: Array) -> tuple[Array, Array]:
    every = (a[:, None] * b[None]).reshape(-1)
    x, steps = jax.vmap(root)(every)
    return x.reshape(len(a), len(b)).max(1), steps.reshape(len(a), len(b)).max(1)


def bisected(a: Array, b: Array) -> Array:
    """Each element has its own bounds, and vectors of them."""

    def one(a: Array, b: Array) -> Array:
        def step(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bounds
            middle = (low + high) / 2
            below = (middle**3 < a * b).all()
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        bounds = (jnp.zeros(3), jnp.full(3, 4.0))
        return lax.while_loop(lambda bounds: (bounds[1] - bounds[0]).max() > 1e-3, step, bounds)[0]

    return jax.vmap(lambda x: jax.vmap(lambda y: one(x, y))(b))(a).max((1, 2))


def nested(a: Array, b: Array) -> Array:
    """Loops in a loop, each until its own is done."""

    def one(a: Array) -> Array:
        def outer(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, n = carry
            y = lax.while_loop(lambda y: y < 2 * a, lambda y: 1.5 * y + 0.1, x / 8)
            return x + y / 4, n + 1

        return lax.while_loop(lambda carry: carry[0] < 40, outer, (a, jnp.int32(0)))[1]

    return jax.vmap(one)((a[:, None] * b[None]).reshape(-1)).reshape(len(a), len(b)).max(1)


def gammas(key: Array) -> Array:
    return jax.random.gamma(jax.random.wrap_key_data(key), 2.5, (200, 100)).max(1)


def counts(key: Array) -> Array:
    return jax.random.poisson(jax.random.wrap_key_data(key), 20.0, (200, 100)).max(1)


def students(key: Array) -> Array:
    return jax.random.t(jax.random.wrap_key_data(key), 3.0, (200, 100)).max(1)


def descents(a: Array, b: Array) -> Array:
    """Each until its own gradient is small: a sum, and a product, of what the element has."""
    scale = jnp.arange(1.0, 9.0)

    def one(a: Array, b: Array) -> Array:
        def gradient(x: Array) -> Array:
            return scale * x - a * b

        def go_on(state: tuple[Array, Array]) -> Array:
            g = gradient(state[0])
            return (g @ g > 1e-6) & (jnp.abs(g).sum() > 1e-4) & (state[1] < 60)

        def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            return state[0] - 0.2 * gradient(state[0]), state[1] + 1

        return lax.while_loop(go_on, step, (jnp.zeros(8), jnp.int32(0)))[0]

    return jax.vmap(lambda x: jax.vmap(lambda y: one(x, y))(b))(a).max((1, 2))


KEY = np.array([1, 2], np.uint32)
PAIR = (numbers(0, 150), numbers(1, 140))
# What is left of the predicted peak at most; programs this small may need as much for what is small.
CUT: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], float]] = {
    "roots": (roots, PAIR, 0.4),
    "bisected": (bisected, PAIR, 0.8),
    "nested": (nested, PAIR, 0.4),
    "descents": (descents, PAIR, 0.3),
    "gamma": (gammas, (KEY,), 0.4),
    "poisson": (counts, (KEY,), 3.0),
    "t": (students, (KEY,), 0.4),
}


def steps_of_all(a: Array, b: Array) -> Array:
    """A counter that all share says when the last one is done."""
    every = a[:, None] * b[None]

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        x, n = carry
        return jnp.where(x < 9, x * 1.5 + 0.1, x), n + 1

    x, n = lax.while_loop(lambda carry: (carry[0] < 9).any(), step, (every, jnp.int32(0)))
    return x.max(1) + n


def goes_on_after(a: Array, b: Array) -> Array:
    """What is done changes as long as others are not."""
    every = a[:, None] * b[None]
    return lax.while_loop(lambda x: (x < 9).any(), lambda x: jnp.where(x < 12, x * 1.5 + 0.1, x), every).max(1)


def waits_for_its_row(a: Array, b: Array) -> Array:
    """An element is done when none of its row goes on: rows are cut, columns are not."""
    every = a[:, None] * b[None]

    def step(x: Array) -> Array:
        return jnp.where((x.min(1) < 3)[:, None], x * 1.2 + 0.01, x)

    return lax.while_loop(lambda x: (x.min(1) < 3).any(), step, every).sum(1)


def of_the_mean(a: Array, b: Array) -> Array:
    """Whether one goes on depends on all."""
    every = a[:, None] * b[None]

    def step(x: Array) -> Array:
        return jnp.where(x < x.mean() + 0.1, x * 1.5 + 0.1, x)

    return lax.while_loop(lambda x: (x < x.mean() + 0.1).any() & (x.max() < 1e3), step, every).max(1)


def of_the_largest(a: Array, b: Array) -> Array:
    """Whether one goes on depends on the largest of all, which grows."""
    every = a[:, None] * b[None]

    def step(x: Array) -> Array:
        return jnp.where(x < x.max() * 0.5, x * 2.3 + 0.01, x)

    return lax.while_loop(lambda x: (x < x.max() * 0.5).any(), step, every).sum(1)


WHOLE = (steps_of_all, goes_on_after, of_the_mean, of_the_largest)


def rewritten(function: Callable[..., Any], arguments: tuple[np.ndarray, ...]) -> tuple[str, str, float]:
    """The program before and after, and what is left of its peak."""
    text = str(jax.export.export(jax.jit(function))(*arguments).mlir_module())
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        before = predict(module).peak
        run_pipeline(module, DEFAULT_PASSES, _OPTIONS)
        return text, serialise(module, "text").decode(), predict(module).peak / before


def assert_same(text: str, after: str, arguments: tuple[np.ndarray, ...]) -> None:
    for expected, actual in zip(run_module(text, list(arguments)), run_module(after, list(arguments)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("name", CUT)
def test_tiles_stop_on_their_own(name: str) -> None:
    function, arguments, most = CUT[name]
    text, after, left = rewritten(function, arguments)
    assert left < most
    assert_same(text, after, arguments)


def test_what_waits_for_its_row_is_cut_between_rows() -> None:
    text, after, left = rewritten(waits_for_its_row, PAIR)
    assert left < 0.6, left
    assert_same(text, after, PAIR)


@pytest.mark.parametrize("function", WHOLE)
def test_what_others_change_runs_until_all_are_done(function: Callable[..., Any]) -> None:
    text, after, _ = rewritten(function, PAIR)
    assert "tensor<150x140xf32>" in after.partition("stablehlo.while")[2].partition("cond")[0]
    assert_same(text, after, PAIR)
