"""Tensors of the program that a loop writes its result over: executed, and their memory as the compiler plans it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

Array = Any
_ROWS, _WIDTH, _HIDDEN = 4096, 64, 512
_SORTED = _ROWS * _WIDTH * 4
_OPTIONS = Options(size_threshold=_SORTED // 8, split_size=_SORTED // 8)


def wide_layer(x: Array, w: Array) -> Array:
    return x + jnp.tanh(x @ w.T) @ w


def read_last(x: Array, w: Array) -> Array:
    return wide_layer(jnp.sort(x, axis=0), w)


def in_another_shape(x: Array, w: Array) -> Array:
    x = jnp.sort(x, axis=0)
    y = jnp.tanh(x @ w.T) @ w
    return x.reshape(512, 8, _WIDTH) + y.reshape(512, 8, _WIDTH)


def rows_that_do_not_divide(x: Array, w: Array) -> Array:
    return wide_layer(jnp.sort(x[:-95], axis=0), w)


def two_of_them(x: Array, w: Array) -> tuple[Array, Array]:
    a, b = jnp.sort(x, axis=0), jnp.sort(-x, axis=0)
    hidden = jnp.sort(a @ w.T, axis=1) + jnp.sort(b @ w.T, axis=1)
    return a + hidden @ w, b * (hidden @ w)


def in_a_loop(x: Array, w: Array) -> Array:
    def step(x: Array, _: None) -> tuple[Array, None]:
        return wide_layer(jnp.sort(x, axis=0), w), None

    return jax.lax.scan(step, x, length=3)[0]


def in_other_slices(x: Array, w: Array) -> Array:
    x = jnp.sort(x, axis=0)
    return x[::-1] + jnp.tanh(x @ w.T) @ w


def read_afterwards(x: Array, w: Array) -> tuple[Array, Array]:
    x = jnp.sort(x, axis=0)
    return wide_layer(x, w), x


def in_one_half(x: Array, w: Array) -> tuple[Array, Array]:
    """In the first half, the first result is written before the product reads its slice."""
    x = jnp.sort(x, axis=0)
    hidden = jnp.tanh(x @ w.T) @ w
    y = jnp.concatenate([x[: len(x) // 2], hidden[len(x) // 2 :]]) * 0.3
    return (y + hidden) * 0.3, y


def copies_in_loops(text: str, rows: int = _ROWS, width: int = _WIDTH) -> list[str]:
    """The copies of tensors of the sorted one's shape that XLA makes in loops."""
    [compiled] = compile_program(text).executable.hlo_modules()
    bodies, _, _ = compiled.to_string().partition("\nENTRY")
    return [line for line in bodies.splitlines() if f"= f32[{rows},{width}]" in line and " copy(" in line]


def split(
    function: Callable[..., Any],
    rows: int = _ROWS,
    width: int = _WIDTH,
    hidden: int = _HIDDEN,
    options: Options = _OPTIONS,
) -> tuple[str, str, int]:
    """The module before and after, and the temp that is predicted."""
    shapes = [jax.ShapeDtypeStruct((size, width), jnp.float32) for size in (rows, hidden)]
    text = str(jax.export.export(jax.jit(function), platforms=["cpu"])(*shapes).mlir_module())
    module = parse_module("test", text.encode(), new_context()).module
    run_pipeline(module, DEFAULT_PASSES, options)
    return text, str(module), read_timeline(module).memory.temp


@pytest.mark.parametrize("function", [read_last, in_another_shape, rows_that_do_not_divide, two_of_them])
def test_what_dies_in_a_loop_has_the_buffer_of_its_result(function: Callable[..., Any]) -> None:
    before, after, predicted = split(function)
    temp = measure_memory(after).temp
    assert temp < _SORTED / 2, "the sorted tensor and the result are in two buffers"
    assert predicted == pytest.approx(temp, rel=0.1)
    assert not copies_in_loops(after)
    assert_equal_results(before, after)


@pytest.mark.parametrize("function", [in_a_loop, in_other_slices, read_afterwards])
def test_what_cannot_be_written_over_has_equal_results(function: Callable[..., Any]) -> None:
    before, after, predicted = split(function)
    temp = measure_memory(after).temp
    assert predicted == pytest.approx(temp, rel=0.15)
    assert not copies_in_loops(after)
    assert_equal_results(before, after)


def test_what_some_tiles_write_first_is_not_written_over() -> None:
    before, after, _ = split(in_one_half, 262_144, 16, 64, Options(size_threshold=1_000_000, split_size=1_000_000))
    assert "stablehlo.while" in after
    assert not copies_in_loops(after, 262_144, 16)
    assert_equal_results(before, after)


def held_beside(x: Array, w: Array) -> tuple[Array, Array]:
    """The loop writes a sum of what a barrier holds, which a CPU's compiler drops, and another that is sorted."""
    x = jnp.sort(x, axis=0)
    hidden = jnp.tanh(x @ w.T) @ w
    return jax.lax.optimization_barrier(x) + hidden, jnp.sort(x + hidden, axis=0)


def test_what_is_read_behind_a_barrier_is_not_written_over() -> None:
    options = Options(size_threshold=128_000, split_size=128_000)
    before, after, _ = split(held_beside, 32_768, 16, 64, options)
    assert "stablehlo.while" in after
    assert not copies_in_loops(after, 32_768, 16)
    assert_equal_results(before, after)
