"""Sums whose terms ask about different directions: taken apart where that is legal, executed before and after."""

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
from exla_opt.passes.tensor_splitter.distribute import distribute_sums
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import compile_program, run_program

Array = Any
_ROWS, _COLUMNS = 701, 509
_OPTIONS = Options(size_threshold=200_000, split_size=40_000)


def by_difference(x: Array, y: Array) -> Array:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def by_product(x: Array, y: Array) -> Array:
    """Rounds otherwise in tiles of another shape."""
    return (x * x).sum(1)[:, None] + (y * y).sum(1)[None] - 2 * x @ y.T


def nearest_both_ways(x: Array, y: Array) -> Array:
    d = by_product(x, y)
    return d.min(1).mean() + d.min(0).mean()


def squares_of_nearest(x: Array, y: Array) -> Array:
    d = by_difference(x, y)
    return (d.min(1) ** 2).sum() + (d.min(0) ** 2).sum()


def nearest_less_farthest(x: Array, y: Array) -> Array:
    d = by_product(x, y)
    return d.min(1).mean() - 2 * d.max(0).mean()


def scaled_by_each_other(x: Array, y: Array) -> Array:
    """Each term of the gradient is scaled by the other's minima."""
    d = by_product(x, y)
    return d.min(1).mean() * d.min(0).mean()


def nearest_and_all(x: Array, y: Array) -> Array:
    d = by_difference(x, y)
    return d.min(1).mean() + d.min(0).mean() + jnp.exp(-d).mean()


def clipped(x: Array, y: Array) -> Array:
    """All of the gradient asks where the distance is clipped."""
    d = jnp.maximum(by_product(x, y), 0.0)
    return d.min(1).mean() + d.min(0).mean()


def read_outside(x: Array, y: Array) -> Array:
    """What is nearest is asked by somebody else as well."""
    d = by_product(x, y)
    rows, columns = d == d.min(1, keepdims=True), d == d.min(0, keepdims=True)
    asked = rows.sum(0).astype(x.dtype) @ y[:, 0] + columns.sum(1).astype(x.dtype) @ x[:, 0]
    return d.min(1).mean() + d.min(0).mean() + asked


def gradients(function: Callable[..., Array]) -> Callable[..., Array]:
    return jax.value_and_grad(function, (0, 1))


APART = (nearest_both_ways, squares_of_nearest, nearest_less_farthest, scaled_by_each_other, nearest_and_all)
TOGETHER = (clipped, read_outside)


def exported(function: Callable[..., Array], dtype: Any = np.float32) -> tuple[str, list[np.ndarray]]:
    random = np.random.default_rng(0)
    arguments = [random.standard_normal((size, 3)).astype(dtype) for size in (_ROWS, _COLUMNS)]
    return jax.export.export(jax.jit(gradients(function)))(*arguments).mlir_module(), arguments


def distributes(text: str, options: Options) -> bool:
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        run_pipeline(module, ("normalise", "rce"), options)  # equal questions are one
        return distribute_sums(module, options)


def split(text: str, options: Options) -> tuple[bytes, int, int]:
    """The module as it is rewritten, and its predicted peak before and after."""
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        before = predict(module, CPU).peak
        run_pipeline(module, DEFAULT_PASSES, options)
        return serialise(module, "bytecode"), before, predict(module, CPU).peak


@pytest.mark.parametrize("function", (*APART, *TOGETHER))
def test_results_stay_the_same(function: Callable[..., Array]) -> None:
    text, arguments = exported(function)
    after, before_bytes, after_bytes = split(text, _OPTIONS)
    if function in APART:
        assert after_bytes < 0.2 * before_bytes
    original = compile_program(text)
    expected, actual = run_program(original, arguments), run_program(compile_program(after), arguments)
    for comparison in compare_results(expected, actual, lambda inputs: run_program(original, inputs), arguments):
        assert comparison.passed, comparison.problem


def test_the_distributed_module_alone_gives_the_same_results() -> None:
    text, arguments = exported(nearest_both_ways)
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        run_pipeline(module, ("normalise",), _OPTIONS)
        assert distribute_sums(module, _OPTIONS)
        after = serialise(module, "bytecode")
    original = compile_program(text)
    expected, actual = run_program(original, arguments), run_program(compile_program(after), arguments)
    for comparison in compare_results(expected, actual, lambda inputs: run_program(original, inputs), arguments):
        assert comparison.passed, comparison.problem


def test_what_is_asked_by_somebody_else_as_well_stays() -> None:
    assert not distributes(exported(read_outside)[0], _OPTIONS)


def test_nothing_is_taken_apart_where_sums_must_not_change() -> None:
    text, _ = exported(nearest_both_ways)
    assert distributes(text, _OPTIONS)
    assert not distributes(text, Options(size_threshold=200_000, split_size=40_000, reassociate=False))


def test_short_floats_stay_together() -> None:
    """Every sum of theirs is rounded, and another order of sums rounds other ones."""
    assert not distributes(exported(nearest_both_ways, jnp.bfloat16)[0], _OPTIONS)
