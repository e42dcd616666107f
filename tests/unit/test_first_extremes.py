"""argmin and argmax of long rows out of one block: the same places as of all of the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import GPU
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program

Tensor = Any
PASSES = ("normalise", "blocked-top-k", "normalise")
OPTIONS = Options()
GATHER = '"stablehlo.gather"'


def rewrite(text: str, options: Options = OPTIONS, passes: Sequence[str] = PASSES) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, options)
        return serialise(module, "text").decode()


def export(function: Callable[..., Tensor], specs: str) -> str:
    with jax.enable_x64("f64" in specs):
        return export_program(Program("extremes", function, specs))


FUNCTIONS = {"argmin": lambda x: jnp.argmin(x, -1), "argmax": lambda x: jnp.argmax(x, -1)}


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32", "i8", "u8"])
@pytest.mark.parametrize("shape", ["3x2560", "2x2x2003", "300"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_places(name: str, shape: str, dtype: str) -> None:
    before = export(FUNCTIONS[name], f"{shape}x{dtype}")
    after = rewrite(before)
    picked = "stablehlo.dynamic_slice" if shape == "300" else GATHER  # one window, or one for each row
    assert GATHER not in before and picked in after
    assert rewrite(after) == after
    [x] = random_arguments(before)
    inputs = [x, np.round(x / 2).astype(x.dtype), 0 * x, np.where(x > 1, 1, x).astype(x.dtype)]
    if dtype.startswith("f"):
        inputs += [np.full_like(x, worst) for worst in (np.inf, -np.inf)]
        inputs.append(np.random.default_rng(0).choice([0.0, -0.0], x.shape).astype(x.dtype))
    for each in inputs:
        [expected], [actual] = run_module(before, [each]), run_module(after, [each])
        np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_number_comes_first(name: str) -> None:
    """As numpy has it; here one in every row, for XLA takes any of several."""
    for length in (1000, 1024, 4096):
        before = export(FUNCTIONS[name], f"4x{length}xf32")
        x = np.random.default_rng(0).standard_normal((4, length)).astype(np.float32)
        x[0, 700], x[1, 71], x[2, 999], x[3, 0] = np.nan, np.nan, -np.nan, np.nan
        for text in (before, rewrite(before)):
            [actual] = run_module(text, [x])
            assert actual.tolist() == [700, 71, 999, 0]


@pytest.mark.parametrize(
    ("function", "specs", "options"),
    [
        (FUNCTIONS["argmin"], "3x2560xf32", Options(machine=GPU)),
        (FUNCTIONS["argmin"], "3x200xf32", OPTIONS),
        (lambda x: jnp.argmin(x, 0), "2560x3xf32", OPTIONS),
        (lambda x: jnp.argmin(x, 1), "0x2560xf32", OPTIONS),
        (lambda x: lax.argmax(x, 1, np.int8), "3x2560xf32", OPTIONS),
        (
            lambda x: jnp.argmax(x * jax.random.uniform(jax.random.key(0, impl="rbg"), (3, 2560)), 1),
            "3x2560xf32",
            OPTIONS,
        ),
        (lambda x: jnp.argmin(jnp.pad(x[:, None] - x, ((0, 0), (1, 0))), 1), "3000xf32", OPTIONS),
    ],
    ids=[
        "another machine",
        "short rows",
        "columns",
        "no rows",
        "places that wrap",
        "drawn numbers",
        "rows that are never written",
    ],
)
def test_others_stay(function: Callable[..., Tensor], specs: str, options: Options) -> None:
    assert GATHER not in rewrite(export(function, specs), options)


def apart(x: Tensor, y: Tensor) -> Tensor:
    return sum((x[:, None, k] - y[None, :, k]) ** 2 for k in range(3))


def nearest_other(x: Tensor) -> Tensor:
    squares = apart(x, x)
    rows, columns = (lax.broadcasted_iota(jnp.int32, squares.shape, dim) for dim in (0, 1))
    return jnp.argmin(jnp.where(rows == columns, jnp.inf, squares), 1)


# The extremes of blocks are, where they are sorted.
PART_OF_ROWS = 1 / 12
MADE: dict[str, tuple[Callable[..., Tensor], str]] = {
    "distances": (lambda x, y: jnp.argmin(apart(x, y), 1), "700x3xf32 2003x3xf32"),
    "products": (lambda x, y: jnp.argmax(jnp.exp(-apart(x, y)), 1), "700x3xf64 2048x3xf64"),
    "another point": (nearest_other, "1500x3xf32"),
    "batches": (jax.vmap(lambda x, y: jnp.argmin(apart(x, y), 1)), "2x300x3xf32 2x1001x3xf32"),
    "batches of some": (
        jax.vmap(lambda x, y: jnp.argmin(apart(x, y), 1), in_axes=(0, None)),
        "2x300x3xf32 1001x3xf32",
    ),
    "batches that are repeated": (jax.vmap(lambda x: jnp.argmin(apart(x, x[:1] + x), 1)), "3x400x3xf32"),
    "a mask": (lambda x, y, m: jnp.argmin(jnp.where(m > 0, apart(x, y), 1e9), 1), "70x3xf32 1001x3xf32 70x1001xi8"),
    "clamped": (lambda x, y: jnp.argmax(jnp.clip(-apart(x, y), -1, -0.1), 1), "700x3xbf16 2003x3xbf16"),
    "both": (lambda x, y: lax.top_k(-apart(x, y), 1), "300x3xf32 4001x3xf32"),
    "the best": (lambda x, y: lax.top_k(-apart(x, y), 3), "300x3xf32 4001x3xf32"),
}


# Of all rows, were they written.
BYTES = {
    "distances": 700 * 2003 * 4,
    "products": 700 * 2048 * 8,
    "another point": 1500 * 1500 * 4,
    "batches": 2 * 300 * 1001 * 4,
    "batches of some": 2 * 300 * 1001 * 4,
    "batches that are repeated": 3 * 400 * 400 * 4,
    "a mask": 70 * 1001 * 4,
    "clamped": 700 * 2003 * 2,
    "both": 300 * 4001 * 4,
    "the best": 300 * 4001 * 4,
}


@pytest.mark.parametrize("name", MADE)
def test_rows_that_are_made_where_they_are_compared_are_never_written(name: str) -> None:
    before = export(*MADE[name])
    after = rewrite(before)
    assert GATHER in after
    inputs = random_arguments(before)
    for each in (inputs, [np.round(argument) for argument in inputs]):
        given = [one.astype(argument.dtype) for one, argument in zip(each, inputs, strict=True)]
        for expected, actual in zip(run_module(before, given), run_module(after, given), strict=True):
            np.testing.assert_array_equal(expected, actual)
    assert measure_memory(after).temp < PART_OF_ROWS * BYTES[name]


def nearest(x: Tensor, y: Tensor) -> Tensor:
    return jnp.argmin(((x[:, None] - y[None]) ** 2).sum(-1), 1)


def test_nearest_in_slices() -> None:
    before = export(nearest, "2000x40xf32 5000x40xf32")
    options = Options(size_threshold=10_000_000, split_size=4_000_000)
    without, after = (
        rewrite(before, options, [name for name in DEFAULT_PASSES if name != left]) for left in ("blocked-top-k", "")
    )
    assert "stablehlo.while" in after and GATHER in after and GATHER not in without
    assert measure_memory(after).peak < 1.05 * measure_memory(without).peak
    assert_equal_results(before, after)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("length", [256, 300])
def test_truth_values_have_no_sign(length: int, name: str) -> None:
    """The first element of a row that is true, as `argmax(x > 3)` asks for it."""
    before = export(FUNCTIONS[name], f"4x{length}xi1")
    after = rewrite(before)
    assert GATHER in after
    x = np.zeros((4, length), bool)
    x[0, 200:], x[1, 70] = True, True
    for each in (x, ~x):
        [expected], [actual] = run_module(before, [each]), run_module(after, [each])
        np.testing.assert_array_equal(expected, actual)
