"""Triangular solves block by block: executed against XLA's with all flags, and what is left alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import machine_of
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import run_module

Array = np.ndarray[Any, Any]
ALONE = ("normalise", "blocked-solve", "normalise")
SMALL = Options(size_threshold=64_000, split_size=16_000)
ON_GPU = Options(size_threshold=64_000, split_size=16_000, machine=machine_of("gpu"))
DTYPES = {"f32": np.float32, "f64": np.float64}
PRECISION = {"f32": 3e-5, "f64": 1e-12}
FLAGS = list(product([True, False], repeat=4))

SOLVE = """
func.func @main(%a: tensor<{a}>, %b: tensor<{b}>) -> tensor<{b}> {{
  %x = "stablehlo.triangular_solve"(%a, %b) <{{left_side = {left}, lower = {lower}, transpose_a = #stablehlo<transpose {transposed}>,
    unit_diagonal = {unit}}}> : (tensor<{a}>, tensor<{b}>) -> tensor<{b}>
  return %x : tensor<{b}>
}}"""


WRITTEN_IN_A_LOOP = """%zero = stablehlo.constant dense<0> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %m:2 = stablehlo.while(%i = %zero, %c = %a) : tensor<i32>, tensor<200x200xf32>
  cond {
    %more = stablehlo.compare LT, %i, %two, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %n = stablehlo.negate %c : tensor<200x200xf32>
    stablehlo.return %next, %n : tensor<i32>, tensor<200x200xf32>
  }
"""


def solve(a: str, b: str, left: bool, lower: bool, transposed: bool | str, unit: bool) -> str:
    how = transposed if isinstance(transposed, str) else "TRANSPOSE" if transposed else "NO_TRANSPOSE"
    flags = {name: str(flag).lower() for name, flag in (("left", left), ("lower", lower), ("unit", unit))}
    return SOLVE.format(a=a, b=b, transposed=how, **flags)


def rewrite(text: str, options: Options = SMALL, passes: tuple[str, ...] = ALONE) -> tuple[str, list[str]]:
    """The module behind the passes, and the codes of their remarks."""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        remarks = run_pipeline(module, passes, options).remarks
        return serialise(module, "text").decode(), [remark.code for remark in remarks]


def triangle(size: int, dtype: str, lower: bool, unit: bool, batch: int = 0) -> Array:
    """A matrix that is easily solved, with NaN where nobody may read."""
    matrix = np.random.default_rng(0).uniform(-1, 1, (size, size)) / np.sqrt(size) / 2 + np.eye(size)
    below = np.tri(size, k=-1 if unit else 0)
    read = below if lower else below.T
    made: Array = np.where(read > 0, matrix, np.nan).astype(DTYPES[dtype])
    return made.reshape([1] * batch + [size, size])


def assert_same(text: str, arrays: list[Array], precision: float, options: Options = SMALL) -> None:
    """Assert that the solve is rewritten, and finite and what it was."""
    after, codes = rewrite(text, options)
    assert codes == ["EX010"]
    (expected,), (actual,) = run_module(text, arrays), run_module(after, arrays)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=precision * np.abs(expected).max())


# A size of 200 is that of blocks of one length; one of 301 leaves a rest, and so do 77 and 140 right-hand sides.
@pytest.mark.parametrize(("left", "lower", "transposed", "unit"), FLAGS)
@pytest.mark.parametrize(("size", "others", "dtype"), [(200, 77, "f64"), (301, 140, "f32")])
def test_the_solution_is_the_same(
    left: bool, lower: bool, transposed: bool, unit: bool, size: int, others: int, dtype: str
) -> None:
    shape = (size, others) if left else (others, size)
    sides = np.random.default_rng(1).standard_normal(shape).astype(DTYPES[dtype])
    text = solve(f"{size}x{size}x{dtype}", f"{shape[0]}x{shape[1]}x{dtype}", left, lower, transposed, unit)
    assert_same(text, [triangle(size, dtype, lower, unit), sides], PRECISION[dtype])


@pytest.mark.parametrize(("left", "lower", "transposed", "unit"), FLAGS)
def test_the_solution_is_the_same_in_loops_for_a_gpu(left: bool, lower: bool, transposed: bool, unit: bool) -> None:
    shape = (200, 77) if left else (77, 200)
    sides = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    text = solve("200x200xf32", f"{shape[0]}x{shape[1]}xf32", left, lower, transposed, unit)
    assert not rewrite(text, ON_GPU)[1]  # nobody knows in which order it is
    text = text.replace('"stablehlo.triangular_solve"(%a', '"stablehlo.triangular_solve"(%m#1')
    text = text.replace("%x =", WRITTEN_IN_A_LOOP + "  %x =")
    assert "stablehlo.transpose" in rewrite(text, ON_GPU)[0].replace("#stablehlo<transpose", "")
    assert_same(text, [triangle(200, "f32", lower, unit), sides], PRECISION["f32"], ON_GPU)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("how", ["TRANSPOSE", "ADJOINT"])
def test_a_batch_of_one_is_rewritten(left: bool, how: str) -> None:
    shape = (1, 301, 3) if left else (1, 3, 301)
    sides = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    text = solve("1x301x301xf32", "x".join(map(str, shape)) + "xf32", left, True, how, False)
    assert_same(text, [triangle(301, "f32", True, False, batch=1), sides], PRECISION["f32"])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("2x200x200xf32", "2x200x3xf32"),
        ("200x200xcomplex<f32>", "200x3xcomplex<f32>"),
        ("200x200xf16", "200x3xf16"),
        ("200x200xbf16", "200x3xbf16"),
        ("128x128xf32", "128x1000xf32"),  # XLA solves so few rows at once
    ],
)
def test_other_systems_are_left_alone(a: str, b: str) -> None:
    after, codes = rewrite(solve(a, b, True, True, False, False))
    assert not codes
    assert "stablehlo.while" not in after


@pytest.mark.parametrize(
    "options",
    [
        Options(size_threshold=200 * 200 * 4, split_size=16_000),
        Options(size_threshold=64_000, split_size=16_000, reassociate=False),
        Options(size_threshold=64_000, split_size=16_000, machine=machine_of("tpu")),
    ],
)
def test_it_is_left_alone(options: Options) -> None:
    text = solve("200x200xf32", "200x3xf32", True, True, False, False)
    assert rewrite(text)[1] == ["EX010"]
    after, codes = rewrite(text, options)
    assert not codes
    assert "stablehlo.while" not in after


# In XLA the first takes copies of parts of the matrix, the second one of the right-hand sides.
@pytest.mark.parametrize(("others", "copied"), [(1, 0.5), (1000, 1.0)])
def test_it_copies_little(others: int, copied: float) -> None:
    text = solve("1000x1000xf32", f"1000x{others}xf32", True, True, False, False)
    after, _ = rewrite(text, Options(size_threshold=400_000, split_size=100_000), DEFAULT_PASSES)
    assert measure_memory(text).temp > copied * 4_000_000
    assert measure_memory(after).temp < 0.3 * 4_000_000
