"""Gradients of minima that wait for all minima: picked a second time in the loop that compares, executed before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.ask_anew import ask_anew
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import compile_program, run_program

Array = Any
_ROWS, _COLUMNS = 701, 509
_OPTIONS = Options(size_threshold=200_000, split_size=40_000)


def squares(x: Array, y: Array) -> Array:
    """Rounds otherwise in tiles of another shape, so an answer about other bits would be seen."""
    return (x * x).sum(1)[:, None] + (y * y).sum(1)[None] - 2 * x @ y.T


def root_of_mean(x: Array, y: Array) -> Array:
    return jnp.sqrt(squares(x, y).min(1).mean())


def logarithm_of_both(x: Array, y: Array) -> Array:
    d = squares(x, y)
    return jnp.log(d.min(1).mean() + d.min(0).mean())


def farthest_of_nearest(x: Array, y: Array) -> Array:
    """The Hausdorff distance."""
    d = jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1) + 1e-9)
    return jnp.maximum(d.min(1).max(), d.min(0).max())


def weighted_by_softmax(x: Array, y: Array) -> Array:
    m = squares(x, y).max(1)
    return (jax.nn.softmax(m) * m).sum()


def ties(x: Array, y: Array) -> Array:
    """Many elements are the least ones of their rows."""
    x, y = (each + jax.lax.stop_gradient(jnp.round(each) - each) for each in (x, y))
    return jnp.sqrt(squares(x, y).min(1).mean() + 1)


def roots_of_each(x: Array, y: Array) -> Array:
    """A row of the gradient needs its own minimum alone: one loop does."""
    return jnp.sqrt(squares(x, y).min(1) + 1).mean()


def means_both_ways(x: Array, y: Array) -> Array:
    """Each distance has a factor that is made of the distance, and is to be made for both terms."""
    d = jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1) + 1e-9)
    return d.min(1).mean() + d.min(0).mean()


WAITING = (root_of_mean, logarithm_of_both, farthest_of_nearest, weighted_by_softmax, ties)
OTHERS = (roots_of_each, means_both_ways)


def exported(function: Callable[..., Array]) -> tuple[str, list[np.ndarray]]:
    random = np.random.default_rng(0)
    arguments = [random.standard_normal((size, 3)).astype(np.float32) for size in (_ROWS, _COLUMNS)]
    gradient = jax.jit(jax.value_and_grad(function, (0, 1)))
    return jax.export.export(gradient)(*arguments).mlir_module(), arguments


def assert_equal(before: str, after: bytes, arguments: list[np.ndarray]) -> None:
    original = compile_program(before)
    expected, actual = run_program(original, arguments), run_program(compile_program(after), arguments)
    for comparison in compare_results(expected, actual, lambda inputs: run_program(original, inputs), arguments):
        assert comparison.passed, comparison.problem


@pytest.mark.parametrize("function", (*WAITING, *OTHERS))
def test_the_gradient_is_split_and_stays_the_same(function: Callable[..., Array]) -> None:
    text, arguments = exported(function)
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        before = predict(module, CPU).peak
        run_pipeline(module, DEFAULT_PASSES, _OPTIONS)
        assert predict(module, CPU).peak < 0.2 * before
        after = serialise(module, "bytecode")
    assert_equal(text, after, arguments)


@pytest.mark.parametrize("function", (*WAITING, *OTHERS))
def test_only_what_waits_for_all_picks_is_picked_again(function: Callable[..., Array]) -> None:
    text, arguments = exported(function)
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        run_pipeline(module, ("normalise", "rce"), _OPTIONS)
        assert ask_anew(module, _OPTIONS) == (function in WAITING)
        assert not ask_anew(module, _OPTIONS), "once is enough"
        after = serialise(module, "bytecode")
    assert_equal(text, after, arguments)
