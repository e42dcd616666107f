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


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32", "i8"])
@pytest.mark.parametrize("shape", ["3x2560", "2x2x2003", "300"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_places(name: str, shape: str, dtype: str) -> None:
    before = export(FUNCTIONS[name], f"{shape}x{dtype}")
    after = rewrite(before)
    assert GATHER not in before and GATHER in after
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
        (lambda x: jnp.argmin(jnp.sin(x)[:, None] - jnp.cos(x), 1), "3000xf32", OPTIONS),
    ],
    ids=["another machine", "short rows", "columns", "no rows", "places that wrap", "rows that are never written"],
)
def test_others_stay(function: Callable[..., Tensor], specs: str, options: Options) -> None:
    assert GATHER not in rewrite(export(function, specs), options)


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
