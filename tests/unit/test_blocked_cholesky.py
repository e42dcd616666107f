"""Cholesky factors block by block: executed against XLA's, whatever the triangle, NaN included, and what is left alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import machine_of
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import Program, compile_program, run_program
from exla_opt.runtime.memory import measure_memory

Array = np.ndarray[Any, Any]
ALONE = ("normalise", "blocked-cholesky", "normalise")
SMALL = Options(size_threshold=64_000, split_size=16_000)
ON_GPU = Options(size_threshold=64_000, split_size=16_000, machine=machine_of("gpu"))
DTYPES = {"f32": np.float32, "f64": np.float64}
PRECISION = {"f32": 3e-5, "f64": 1e-12}
# Blocks of one length, and with a shorter one behind them.
SIZES = (200, 301)

CHOLESKY = """
func.func @main(%k: tensor<{shape}>) -> tensor<{shape}> {{
  %l = stablehlo.cholesky %k, lower = {lower} : tensor<{shape}>
  return %l : tensor<{shape}>
}}"""
MASKED = """
func.func @main(%k: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %l = stablehlo.cholesky %k, lower = {lower} : tensor<{n}x{n}xf32>
  %i = stablehlo.iota dim = 0 : tensor<{n}x{n}xi32>
  %d = stablehlo.constant dense<{shift}> : tensor<{n}x{n}xi32>
  %row = stablehlo.add %i, %d : tensor<{n}x{n}xi32>
  %column = stablehlo.iota dim = 1 : tensor<{n}x{n}xi32>
  %own = stablehlo.compare {direction}, %row, %column, SIGNED : (tensor<{n}x{n}xi32>, tensor<{n}x{n}xi32>) -> tensor<{n}x{n}xi1>
  %zero = stablehlo.constant dense<0.0> : tensor<{n}x{n}xf32>
  %r = stablehlo.select %own, %l, %zero : tensor<{n}x{n}xi1>, tensor<{n}x{n}xf32>
  return %r : tensor<{n}x{n}xf32>
}}"""


# An upper factor by way of the lower one, as jax writes it: its product and its solutions with all that it may stand beside.
UPPER = """
func.func @main(%k: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %t = stablehlo.transpose %k, dims = [1, 0] : (tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %l = stablehlo.cholesky %t, lower = {lower} : tensor<{n}x{n}xf32>
  %u = stablehlo.transpose %l, dims = [1, 0] : (tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %a = stablehlo.dot_general %l, %k, contracting_dims = [0] x [0] : (tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %b = stablehlo.dot_general %a, %l, contracting_dims = [1] x [1] : (tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %x = "stablehlo.triangular_solve"(%l, %b) <{{left_side = true, lower = {lower}, transpose_a = #stablehlo<transpose {how}>,
    unit_diagonal = false}}> : (tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %y = "stablehlo.triangular_solve"(%u, %x) <{{left_side = false, lower = {upper}, transpose_a = #stablehlo<transpose {how}>,
    unit_diagonal = false}}> : (tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  return %y : tensor<{n}x{n}xf32>
}}"""


def cholesky(shape: str, lower: bool) -> str:
    return CHOLESKY.format(shape=shape, lower=str(lower).lower())


def masked(lower: bool, direction: str, shift: int, size: int = 301) -> str:
    return MASKED.format(n=size, lower=str(lower).lower(), direction=direction, shift=shift)


def rewrite(text: str, options: Options = SMALL, passes: tuple[str, ...] = ALONE) -> tuple[str, list[str]]:
    """The module behind the passes, and the codes of their remarks."""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        remarks = run_pipeline(module, passes, options).remarks
        return serialise(module, "text").decode(), [remark.code for remark in remarks]


def covariance(size: int, dtype: str = "f32") -> Array:
    points = np.random.default_rng(0).standard_normal((size, 3))
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    matrix: Array = np.exp(-0.5 * squares) + 0.5 * np.eye(size)
    return matrix.astype(DTYPES[dtype])


def own_triangle(size: int, lower: bool) -> Array:
    below: Array = np.tri(size, dtype=bool)
    return below if lower else below.T


@cache
def programs(text: str, options: Options = SMALL) -> tuple[Program, Program]:
    """The module and the rewritten one. Most of the time of a test is that of XLA's compiler."""
    after, codes = rewrite(text, options)
    assert codes == ["EX009"]
    return compile_program(text), compile_program(after)


def assert_same(text: str, matrix: Array, precision: float = PRECISION["f32"], options: Options = SMALL) -> Array:
    """Assert that the factor is rewritten and what it was, NaN in the same places; returns it."""
    (expected,), (actual,) = (run_program(program, [matrix]) for program in programs(text, options))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=precision)
    return expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("batch", ["", "1x"])
def test_the_factor_is_the_same(size: int, dtype: str, lower: bool, batch: str) -> None:
    matrix = covariance(size, dtype).reshape([1] * batch.count("x") + [size, size])
    made = assert_same(cholesky(f"{batch}{size}x{size}x{dtype}", lower), matrix, PRECISION[dtype])
    # XLA has zeros in the other triangle, on which dropped selections rely.
    assert not made[..., ~own_triangle(size, lower)].any()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("other", [np.nan, 7.0])
def test_the_other_triangle_is_not_read(size: int, lower: bool, other: float) -> None:
    matrix = np.where(own_triangle(size, lower), covariance(size), np.float32(other))
    made = assert_same(cholesky(f"{size}x{size}xf32", lower), matrix)
    assert np.isfinite(made).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lower", [True, False])
def test_the_factor_is_the_same_in_loops_for_a_gpu(size: int, lower: bool) -> None:
    assert_same(cholesky(f"{size}x{size}xf32", lower), covariance(size), options=ON_GPU)


def test_a_gpu_reads_the_matrix_row_by_row() -> None:
    """cuBLAS wants the tensors of a solve column by column: the transposes of tiles are, and the matrix stays."""
    after, _ = rewrite(cholesky("200x200xf32", True), ON_GPU)
    assert after.count("stablehlo.transpose") == 3
    assert "stablehlo.transpose" not in rewrite(cholesky("200x200xf32", True))[0]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("how", ["TRANSPOSE", "NO_TRANSPOSE", "ADJOINT"])
def test_a_factor_of_the_transpose_is_that_of_the_matrix(lower: bool, how: str) -> None:
    flags = {"lower": str(lower).lower(), "upper": str(not lower).lower()}
    text = UPPER.format(n=200, how=how, **flags)
    assert "stablehlo.transpose" not in rewrite(text)[0]
    # Of the matrix only one triangle may be read: the other one has other numbers, which only the products see.
    matrix = np.where(own_triangle(200, not lower), covariance(200), np.float32(0.5))
    assert_same(text, matrix, 2e-3)


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_factor_of_the_transpose_may_be_returned(spoilt: bool) -> None:
    """A return makes no result that could be the transpose; a sum reads the factor as it was."""
    kind = "tensor<200x200xf32>"
    text = f"""
func.func @main(%k: {kind}) -> ({kind}, {kind}) {{
  %t = stablehlo.transpose %k, dims = [1, 0] : ({kind}) -> {kind}
  %l = stablehlo.cholesky %t, lower = true : {kind}
  %s = stablehlo.add %l, %k : {kind}
  return %l, %s : {kind}, {kind}
}}"""
    matrix = covariance(200)
    matrix[150, 150] *= -1 if spoilt else 1
    before, after = (run_program(program, [matrix]) for program in programs(text))
    np.testing.assert_allclose(after, before, rtol=0, atol=PRECISION["f32"])
    assert np.isnan(after[0]).any() == spoilt


# row, column and number, of a size of 301: in a block in the middle, the first and the last; what has no factor.
SPOILT = {
    "negative": (150, 150, -1.0),
    "negative first": (0, 0, -1.0),
    "negative last": (300, 300, -1.0),
    "zero": (150, 150, 0.0),
    "zero last": (300, 300, 0.0),
    "too large": (200, 3, 100.0),
    "NaN": (150, 150, np.nan),
    "NaN last": (300, 3, np.nan),
    "infinity": (150, 150, np.inf),
    "infinity last": (300, 300, np.inf),
    "infinity beside": (150, 100, np.inf),
}


def spoil(name: str) -> Array:
    row, column, number = SPOILT[name]
    matrix = covariance(301)
    matrix[row, column] = matrix[column, row] = number
    return matrix


@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.parametrize("lower", [True, False])
def test_what_does_not_exist_is_nan_in_the_same_places(name: str, lower: bool) -> None:
    made = assert_same(cholesky("301x301xf32", lower), spoil(name))
    assert np.isnan(made).any()


# Of row + shift and column: what is true in the triangle and nowhere else.
EXACT = [(True, "GE", 0), (True, "GT", 1), (False, "LE", 0), (False, "LT", -1)]
OTHERS = [(True, "GE", 1), (True, "GE", -1), (True, "GT", 0), (True, "LE", 0), (False, "LE", 1), (False, "GE", 0)]


@pytest.mark.parametrize(("lower", "direction", "shift"), EXACT + OTHERS)
@pytest.mark.parametrize("name", ["", "negative", "infinity last"])
def test_a_selection_of_the_factor_is_the_same(lower: bool, direction: str, shift: int, name: str) -> None:
    assert_same(masked(lower, direction, shift), spoil(name) if name else covariance(301))


@pytest.mark.parametrize(("lower", "direction", "shift"), EXACT + OTHERS)
def test_the_selection_of_the_triangle_goes_and_no_other(lower: bool, direction: str, shift: int) -> None:
    after, _ = rewrite(masked(lower, direction, shift))
    assert ("tensor<301x301xi1>" in after) != ((lower, direction, shift) in EXACT)


def test_a_selection_stays_where_somebody_reads_the_factor_itself() -> None:
    text = masked(True, "GE", 0).replace("return %r", "%s = stablehlo.add %l, %r : tensor<301x301xf32>\n  return %s")
    assert "tensor<301x301xi1>" in rewrite(text)[0]
    assert_same(text, covariance(301))
    assert_same(text, spoil("negative"))


@pytest.mark.parametrize("shape", ["2x200x200xf32", "200x200xcomplex<f32>", "200x200xf16", "200x200xbf16"])
def test_other_matrices_are_left_alone(shape: str) -> None:
    text = cholesky(shape, True)
    if "f16" in shape:  # XLA has none of these
        text = text.replace("return", "%s = stablehlo.negate %l : tensor<" + shape + ">\n  return")
    after, codes = rewrite(text)
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
    assert rewrite(cholesky("200x200xf32", True))[1] == ["EX009"]
    after, codes = rewrite(cholesky("200x200xf32", True), options)
    assert not codes
    assert "stablehlo.while" not in after


def test_an_attribute_of_another_dialect_is_kept() -> None:
    text = cholesky("200x200xf32", True).replace("lower = true", 'lower = true {mhlo.frontend_attributes = {a = "b"}}')
    after, codes = rewrite(text)
    assert not codes
    assert "frontend_attributes" in after


def test_it_takes_little_more_than_the_matrix() -> None:
    text = cholesky("1000x1000xf32", True).replace(
        "%l = stablehlo.cholesky %k,",
        "%e = stablehlo.exponential %k : tensor<1000x1000xf32>\n  %l = stablehlo.cholesky %e,",
    )
    after, _ = rewrite(text, Options(size_threshold=400_000, split_size=100_000), DEFAULT_PASSES)
    assert measure_memory(after).temp < 0.5 * measure_memory(text).temp
