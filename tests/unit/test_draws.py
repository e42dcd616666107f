"""Random inputs: weights are scaled by what they sum over, and roots and logarithms get numbers that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.draws import choose_inputs, fan_ins
from exla_opt.runtime.inputs import Array
from exla_opt.runtime.nudge import measure_spreads, nudge

FEATURES, HIDDEN = 64, 96


def text_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return str(export.export(jax.jit(function))(*specs).mlir_module())


def weights_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> dict[int, int]:
    with new_context() as context:
        return fan_ins(parse_module("<program>", text_of(function, *shapes).encode(), context).module)


def inputs_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[list[Array], list[Array]]:
    text = text_of(function, *shapes)
    program = compile_program(text)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        return choose_inputs(module, 0, lambda arrays: run_program(program, arrays))


def perceptron(x: Any, w: Any, b: Any, v: Any) -> Any:
    return jax.nn.relu(x @ w + b) @ v


PERCEPTRON = ((8, FEATURES), (FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, 10))


def layers(x: Any, stacked: Any) -> Any:
    return jax.lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, stacked)[0]


def tied(tokens: Any, table: Any, w: Any) -> Any:
    rows = jnp.arange(8) * 3 % 50
    return (table[rows] + tokens) @ w @ table.T


def convolved(image: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


CASES = [
    (perceptron, PERCEPTRON, {1: FEATURES, 3: HIDDEN}),
    (jax.grad(lambda *a: (perceptron(*a) ** 2).sum(), (0, 1, 3)), PERCEPTRON, {1: FEATURES, 3: HIDDEN}),
    (layers, ((8, FEATURES), (5, FEATURES, FEATURES)), {1: FEATURES}),
    (tied, ((8, FEATURES), (50, FEATURES), (FEATURES, FEATURES)), {1: FEATURES, 2: FEATURES}),
    (convolved, ((1, 8, 8, 4), (3, 3, 4, 16)), {1: 3 * 3 * 4}),
    (lambda x: x @ x.T, ((8, FEATURES),), {}),
    (lambda q, k: jnp.einsum("bid,bjd->bij", q, k), ((2, 8, FEATURES), (2, 8, FEATURES)), {}),
    (
        lambda x, w: jnp.einsum("oi,bi->bo", w.astype(jnp.bfloat16), x.astype(jnp.bfloat16)),
        ((8, 64), (96, 64)),
        {1: 64},
    ),
]


@pytest.mark.parametrize(("function", "shapes", "weights"), CASES)
def test_weights_and_what_they_sum_over(function: Any, shapes: Any, weights: dict[int, int]) -> None:
    assert weights_of(function, *shapes) == weights


def test_a_product_with_numbers_that_count_has_no_weight() -> None:
    assert weights_of(lambda x: jnp.tanh(x) @ jnp.arange(8.0), (4, 8)) == {}


def test_weights_are_scaled() -> None:
    x, w, b, v = inputs_of(perceptron, *PERCEPTRON)[0]
    for array, scale in ((x, 1), (w, FEATURES**-0.5), (b, 1), (v, HIDDEN**-0.5)):
        assert array.std() == pytest.approx(scale, rel=0.2)


def test_the_logarithm_of_one_argument_leaves_the_other_normal() -> None:
    (x, y), results = inputs_of(lambda x, y: jnp.log(x).sum() + y.sum(), (100,), (100,))
    assert np.isfinite(results[0])
    assert 0 < x.min() < x.max() < 1
    assert y.min() < 0


def test_a_matrix_that_is_factored_is_positive_definite() -> None:
    (matrix, right), results = inputs_of(
        lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b), (20, 20), (20,)
    )
    assert np.isfinite(results[0]).all()
    assert np.linalg.eigvalsh(matrix).min() > 0
    assert right.min() < 0


def test_a_result_that_is_never_finite_keeps_normal_inputs() -> None:
    (x,), results = inputs_of(lambda x: x / 0.0 - x / 0.0, (100,))
    assert np.isnan(results[0]).all()
    assert x.min() < 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, jnp.bfloat16, np.complex64, np.int32, np.bool_])
def test_nudged_floats_are_off_by_an_ulp(dtype: Any) -> None:
    array = np.asarray([0.0, 1.0, -3.0, 1e4, 0.0, 1.0, 7.0]).astype(dtype)
    other = nudge(array, np.random.default_rng(0))
    assert other.dtype == array.dtype and other.shape == array.shape
    if array.dtype.kind in "ib":
        assert (other == array).all()
        return
    parts, others = (one.view(one.real.dtype).astype(np.float64) for one in (array, other))
    error = np.abs(parts - others)
    assert (error[np.abs(parts) > 0] > 0).all()
    assert (error <= np.spacing(np.abs(array.view(array.real.dtype))).astype(np.float64) * 2).all()


def deep(x: Any, w: Any) -> Any:
    """The logistic map: a recurrence that makes more of a rounding in each step."""
    return jax.lax.fori_loop(0, 30, lambda _, y: 3.9 * y * (1 - y), x) + 0 * w


def test_a_chaotic_program_is_compared_by_its_spread() -> None:
    """An error above the type's tolerance passes where an ulp of the inputs makes as large a one, and only there."""
    program = compile_program(text_of(deep, (100,), (100,)))

    def run(arrays: Any) -> list[Array]:
        return run_program(program, arrays)

    inputs = [np.linspace(0.1, 0.9, 100, dtype=np.float32), np.ones(100, np.float32)]
    expected = run(inputs)
    [moved] = measure_spreads(run, inputs, expected)
    spread = float(moved.max())
    assert spread > 0.1
    [near] = compare_results(expected, [expected[0] + np.float32(0.05)], run, inputs)
    assert near.passed and near.spread == spread
    [far] = compare_results(expected, [expected[0] + np.float32(10)], run, inputs)
    assert not far.passed
    calm = [np.linspace(1, 2, 100, dtype=np.float32)]
    [wrong] = compare_results(calm, [calm[0] + np.float32(0.05)], lambda arrays: list(arrays), calm)
    assert not wrong.passed


def test_a_tiny_result_is_compared_relative_to_its_size_unless_it_is_noise() -> None:
    """What is zero on paper has roundings for a result, which another order of sums changes altogether."""
    inputs = [np.linspace(1, 2, 100, dtype=np.float32)]
    factor = np.float32(1e-9)

    def signal(arrays: Any) -> list[Array]:
        return [arrays[0] * factor]

    def noise(arrays: Any) -> list[Array]:
        return [(arrays[0] * np.float32(3.3) / np.float32(3.3) - arrays[0]) * np.float32(0.5)]

    expected = signal(inputs)
    [wrong] = compare_results(expected, [expected[0][::-1].copy()], signal, inputs)
    assert not wrong.passed
    [right] = compare_results(expected, signal(inputs), signal, inputs)
    assert right.passed
    [other] = compare_results(noise(inputs), [noise(inputs)[0][::-1].copy()], noise, inputs)
    assert 0 < other.largest < 1e-6 and other.passed


def test_a_small_number_is_not_rounded_to_nothing_unless_an_ulp_moves_it() -> None:
    """Far below the largest any error passes, but for a zero in the place of what is known well."""
    inputs = [np.array([1, 2, 5e-5], np.float32)]

    def known(arrays: Any) -> list[Array]:
        return [arrays[0] * np.float32(0.5)]

    def noise(arrays: Any) -> list[Array]:
        total = arrays[0] + np.array([0, 0, 300], np.float32)
        return [total - np.array([0, 0, 300], np.float32)]

    [expected] = known(inputs)
    close, gone = expected * np.array([1, 1, 0.5], np.float32), expected * np.array([1, 1, 0], np.float32)
    assert compare_results([expected], [close], known, inputs)[0].passed
    [wrong] = compare_results([expected], [gone], known, inputs)
    assert "1 number is missing, first at [2]: 0 instead of 2.5e-05" in wrong.problem
    tiny = [expected * np.array([1, 1, 1e-4], np.float32)]
    assert compare_results(tiny, [gone], known, inputs)[0].passed
    rounded = [np.array([1, 2, 3e-5], np.float32)]
    assert compare_results(rounded, [np.array([1, 2, 0], np.float32)], noise, inputs)[0].passed
