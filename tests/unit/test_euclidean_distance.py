"""Sums of squared differences and their gradients, as JAX programs: rewritten, without the big tensor, and executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.runtime.compare import compare
from exla_opt.runtime.inputs import Array
from tests.execute import random_arguments, run_module
from tests.programs.model import Program, export_program

PASSES = ("normalise", "euclidean-distance")
Tensor = Any


def rewrite(text: str, threshold: int = 1000) -> tuple[str, tuple[Remark, ...]]:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, PASSES, Options(size_threshold=threshold)).remarks
        return serialise(module, "text").decode(), remarks


def squared(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)


def gradient(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *x: jax.grad(lambda *y: jnp.sum(jnp.sin(function(*y))), tuple(range(len(x))))(*x)


def kernel(a: Tensor, b: Tensor) -> Tensor:
    return jnp.exp(-0.5 * squared(a, b))


def scaled_before(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return jnp.sum(((a / c)[:, None, :] - (b / c)[None, :, :]) ** 2, axis=-1)


def scaled_after(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return jnp.sum(((a[:, None, :] - b[None, :, :]) / c) ** 2, axis=-1)


def weighted(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return jnp.sum(c * (a[:, None, :] - b[None, :, :]) ** 2, axis=-1)


def scaled_far(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The scaling is done on the repeated tensors."""
    shape = (a.shape[0], b.shape[0], a.shape[1])
    left, right, scale = (jnp.broadcast_to(x, shape) for x in (a[:, None], b[None], c))
    return jnp.sum((left / scale - right / scale) ** 2, axis=-1)


def added(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, None, :] + b[None, :, :]) ** 2, axis=-1)


def powered(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(lax.pow(a[:, None, :] - b[None, :, :], 2.0), axis=-1)


def turned(a: Tensor, b: Tensor) -> Tensor:
    """One side lies across: (d, n) instead of (n, d)."""
    return jnp.sum((a.T[:, :, None] - b.T[:, None, :]) ** 2, axis=0)


def batched(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, :, None, :] - b[:, None, :, :]) ** 2, axis=-1)


def several_dimensions(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, None] - b[None, :]) ** 2, axis=(2, 3))


def with_start(a: Tensor, b: Tensor) -> Tensor:
    return lax.reduce((a[:, None, :] - b[None, :, :]) ** 2, jnp.float32(3), lax.add, (2,))


def pushed(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return jnp.sum(w[:, :, None] * (a[:, None, :] - b[None, :, :]), axis=1)


def product(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(a[:, :, None] * b[None], axis=1)


def three_factors(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return jnp.sum(a[:, None, :] * b[None, :, :] * c)


def mean_distance(a: Tensor, b: Tensor) -> Tensor:
    return jnp.mean(squared(a, b))


def integers(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)


@dataclass(frozen=True)
class Case:
    """full: a shape that no tensor may have any more. count: how many sums are rewritten."""

    function: Callable[..., Tensor]
    specs: str
    full: str
    count: int = 1
    wide: bool = False

    def __str__(self) -> str:
        return f"{self.function.__name__}-{self.specs.replace(' ', '-')}"


AB, FULL = "17x5xf32 13x5xf32", "17x13x5x"
CASES = [
    *[Case(squared, f"17x5x{t} 13x5x{t}", FULL) for t in ("f32", "f64", "bf16", "f16")],
    Case(squared, "17x70xf32 13x70xf32", "17x13x70x"),
    Case(kernel, AB, FULL),
    *[Case(each, f"{AB} 5xf32", FULL) for each in (scaled_before, scaled_after, weighted, scaled_far)],
    Case(added, AB, FULL),
    Case(powered, AB, FULL),
    Case(turned, AB, "5x17x13x"),
    Case(batched, "3x17x5xf32 3x13x5xf32", "3x17x13x5x"),
    Case(several_dimensions, "17x3x4xf32 13x3x4xf32", "17x13x3x4x"),
    Case(with_start, AB, FULL),
    Case(pushed, f"{AB} 17x13xf32", FULL),
    Case(product, "17x9xf32 9x13xf32", "17x9x13x"),
    Case(three_factors, f"{AB} 5xf32", FULL),
    Case(mean_distance, AB, FULL),
    Case(integers, "17x5xi32 13x5xi32", FULL),
]
GRADIENTS = [
    (squared, AB, FULL),
    (squared, "17x70xf32 13x70xf32", "17x13x70x"),
    (kernel, AB, FULL),
    (scaled_before, f"{AB} 5xf32", FULL),
    (scaled_after, f"{AB} 5xf32", FULL),
    (batched, "3x17x5xf64 3x13x5xf64", "3x17x13x5x"),
    (product, "17x9xf32 9x13xf32", "17x9x13x"),
    (three_factors, f"{AB} 5xf32", FULL),
]


def check(function: Callable[..., Tensor], specs: str, full: str) -> tuple[Remark, ...]:
    before = export_program(Program("case", function, specs))
    assert f"tensor<{full}" in before
    after, remarks = rewrite(before)
    assert f"tensor<{full}" not in after, [remark.text for remark in remarks]
    assert rewrite(after)[0] == after, "a second run changes it"
    arrays = random_arguments(before)
    for expected, actual in zip(run_module(before, arrays), run_module(after, arrays), strict=True):
        comparison = compare(expected, actual)
        assert comparison.passed, comparison.problem
    return remarks


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_big_tensor_is_gone_and_the_results_are_equal(case: Case) -> None:
    remarks = check(case.function, case.specs, case.full)
    assert [remark.kind for remark in remarks] == [Kind.PASSED] * case.count


@pytest.mark.parametrize(("function", "specs", "full"), GRADIENTS, ids=lambda value: getattr(value, "__name__", value))
def test_gradients(function: Callable[..., Tensor], specs: str, full: str) -> None:
    remarks = check(gradient(function), specs, full)
    assert all(remark.kind is Kind.PASSED for remark in remarks)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 20), st.integers(2, 20), st.integers(2, 40), st.sampled_from([squared, added, kernel]))
def test_any_sizes(n: int, m: int, d: int, function: Callable[..., Tensor]) -> None:
    before = export_program(Program("case", function, f"{n}x{d}xf32 {m}x{d}xf32"))
    after, _ = rewrite(before, threshold=1)
    assert ("dot_general" in after) == (min(n, m, d) >= 2)
    arrays = random_arguments(before)
    comparison = compare(run_module(before, arrays)[0], run_module(after, arrays)[0])
    assert comparison.passed, comparison.problem


def distances(arrays: list[Array]) -> tuple[Array, Array]:
    """The squared distances by the original and by the rewritten program."""
    before = export_program(Program("case", squared, " ".join(f"{x.shape[0]}x{x.shape[1]}xf32" for x in arrays)))
    after, _ = rewrite(before)
    return run_module(before, arrays)[0], run_module(after, arrays)[0]


@pytest.mark.parametrize("width", [3, 200])
def test_near_duplicates_far_from_the_origin(width: int) -> None:
    """Each point has a neighbour at a thousandth of the cloud's width, and the cloud lies a thousand widths away."""
    generator = np.random.default_rng(0)
    cloud = generator.standard_normal((40, width))
    points = (1000 + cloud).astype(np.float32)
    others = (points + 1e-3 * generator.standard_normal(points.shape)).astype(np.float32)
    exact = ((points.astype(np.float64)[:, None] - others.astype(np.float64)[None]) ** 2).sum(-1)
    original, rewritten = distances([points, others])
    assert (rewritten >= 0).all()
    spread = exact.max()
    assert abs(original - exact).max() <= 1e-6 * spread
    assert abs(rewritten - exact).max() <= 1e-6 * spread
    if width == 3:  # done in f64: each single distance is as good as before
        assert (abs(rewritten - exact) <= 4 * np.finfo(np.float32).eps * exact).all()


def test_what_is_not_finite_stays_where_it_was() -> None:
    generator = np.random.default_rng(0)
    points, others = (generator.standard_normal((n, 6)).astype(np.float32) for n in (20, 30))
    points[3, 2], points[5, 1], others[7, 4], others[9, 0] = np.inf, np.nan, -np.inf, np.nan
    original, rewritten = distances([points, others])
    assert compare(original, rewritten).passed
    assert np.isinf(original[3, 0]) and np.isnan(original[5, 0]) and np.isinf(original[0, 7])


def test_weights_that_differ_by_orders_of_magnitude() -> None:
    """A singular kernel's gradient: the pairs that nearly coincide have weights a million times the others'."""
    generator = np.random.default_rng(0)
    places = generator.standard_normal((60, 3)).astype(np.float32)
    weights = np.where(np.eye(60), 1e6, generator.random((60, 60))).astype(np.float32)
    before = export_program(Program("case", pushed, "60x3xf32 60x3xf32 60x60xf32"))
    after, remarks = rewrite(before)
    assert remarks[0].kind is Kind.PASSED
    arrays = [places, places, weights]
    assert compare(run_module(before, arrays)[0], run_module(after, arrays)[0]).passed


def one_centre(a: Tensor, c: Tensor) -> Tensor:
    return jnp.sum((a - c) ** 2, axis=-1)


def cubed(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(lax.pow(a[:, None, :] - b[None, :, :], 3.0), axis=-1)


def largest(a: Tensor, b: Tensor) -> Tensor:
    return jnp.max((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)


def returned(a: Tensor, b: Tensor) -> Tensor:
    apart = a[:, None, :] - b[None, :, :]
    return jnp.sum(apart**2, axis=-1), apart


def one_number(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)


@pytest.mark.parametrize(
    ("function", "specs", "reason"),
    [
        (one_centre, "170x50xf32 50xf32", ""),
        (cubed, AB, "its exponent is not 2"),
        (largest, AB, "its reducer is maximum, not add"),
        (returned, AB, "func.return needs a tensor of its full shape as well"),
        (squared, "17x5xcomplex 13x5xcomplex".replace("complex", "c64"), "its numbers are complex<f32>"),
        (one_number, "170x1xf32 130x1xf32", "what it is multiplied out to is as big"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_stays_as_it_is(function: Callable[..., Tensor], specs: str, reason: str) -> None:
    before = export_program(Program("case", function, specs))
    after, remarks = rewrite(before)
    assert "dot_general" not in after
    assert [remark.kind for remark in remarks] == [Kind.MISSED] * len(remarks)
    assert any(reason in remark.text for remark in remarks) if reason else not remarks
