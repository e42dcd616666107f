"""Sums of squared differences and their gradients, as JAX programs: rewritten, without the big tensor, and executed."""

from __future__ import annotations

import re
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
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.options import Options
from exla_opt.passes.euclidean_distance.candidates import FEW
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.runtime.compare import compare
from exla_opt.runtime.inputs import Array
from tests.execute import assert_equal_results, random_arguments, run_module
from tests.programs.model import Program, export_program

PASSES = ("normalise", "euclidean-distance")
Tensor = Any


def rewrite(text: str, threshold: int = 1000, machine: Machine = CPU) -> tuple[str, tuple[Remark, ...]]:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        remarks = run_pipeline(module, PASSES, Options(size_threshold=threshold, machine=machine)).remarks
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


def columns(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum((a[:, :, None] - b[:, None, :]) ** 2, axis=0)


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


def apart(a: Tensor, b: Tensor) -> Tensor:
    return a[:, None, :] - b[None, :, :]


def halved(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(0.5 * apart(a, b) ** 2, axis=-1)


def negated(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(-(apart(a, b) ** 2), axis=-1)


def weighted_product(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return jnp.sum(apart(a, b) * apart(a, b) * w, axis=-1)


def divided_square(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return jnp.sum(apart(a, b) ** 2 / c**2, axis=-1)


def absolute(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(jnp.abs(apart(a, b)) ** 2, axis=-1)


def dots_of_points(a: Tensor, b: Tensor) -> Tensor:
    return jax.vmap(lambda x: jax.vmap(lambda y: jnp.dot(x - y, x - y))(b))(a)


def einsum_turned(a: Tensor, b: Tensor) -> Tensor:
    return jnp.einsum("ijk,ijk->ji", apart(a, b), apart(a, b))


def einsum_pushed(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return jnp.einsum("ijk,ij->kj", apart(a, b), w)


def many_lengthscales(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return jax.vmap(lambda scale: jnp.sum((apart(a, b) / scale) ** 2, axis=-1))(1 + c * c)


def small_integers(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(a[:, None].astype("int32") * b[None].astype("int32"), axis=-1)


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
# Of so many numbers no sum is added up one by one.
LONG = "19x40xf32 18x40xf32"
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
    Case(pushed, f"{AB} 17x13xf32", FULL),
    Case(product, "17x9xf32 9x13xf32", "17x9x13x"),
    Case(three_factors, f"{AB} 5xf32", FULL),
    Case(mean_distance, AB, FULL),
    Case(integers, "17x5xi32 13x5xi32", FULL),
    Case(small_integers, "17x5xi8 13x5xi8", FULL),
    *[Case(each, AB, FULL) for each in (halved, negated, absolute, dots_of_points, einsum_turned)],
    *[Case(each, f"{AB} 5xf32", FULL) for each in (weighted_product, divided_square)],
    Case(einsum_pushed, f"{AB} 17x13xf32", FULL),
    Case(many_lengthscales, f"{AB} 3x5xf32", "17x13x5x"),
]
GRADIENTS = [
    (squared, AB, FULL),
    (squared, "17x70xf32 13x70xf32", "17x13x70x"),
    (kernel, AB, FULL),
    (scaled_before, f"{AB} 5xf32", FULL),
    (scaled_after, f"{AB} 5xf32", FULL),
    (batched, "3x17x5xf64 3x13x5xf64", "3x17x13x5x"),
    (batched, "3x17x5xf32 3x19x5xf32", "3x17x19x5x"),
    (columns, "5x17xf32 5x19xf32", "5x17x19x"),
    (several_dimensions, "17x3x4xf32 19x3x4xf32", "17x19x3x4x"),
    (product, "17x9xf32 9x13xf32", "17x9x13x"),
    (three_factors, f"{AB} 5xf32", FULL),
    (kernel, "17x40xbf16 13x40xbf16", "17x13x40x"),
    (kernel, AB.replace("f32", "bf16"), FULL),
    (weighted_product, f"{AB} 5xf32", FULL),
    (dots_of_points, AB, FULL),
    (einsum_turned, "17x40xf32 13x40xf32", "17x13x40x"),
    (einsum_pushed, f"{AB} 17x13xf32", FULL),
]


def check(function: Callable[..., Tensor], specs: str, full: str, machine: Machine = CPU) -> tuple[Remark, ...]:
    before = export_program(Program("case", function, specs))
    assert f"tensor<{full}" in before
    after, remarks = rewrite(before, machine=machine)
    assert f"tensor<{full}" not in after, [remark.text for remark in remarks]
    assert machine.doubles or "f64" in specs or "f64" not in after
    assert rewrite(after, machine=machine)[0] == after, "a second run changes it"
    arrays = random_arguments(before)
    for expected, actual in zip(run_module(before, arrays), run_module(after, arrays), strict=True):
        comparison = compare(expected, actual)
        assert comparison.passed, comparison.problem
    return remarks


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_big_tensor_is_gone_and_the_results_are_equal(case: Case) -> None:
    remarks = check(case.function, case.specs, case.full)
    assert [remark.kind for remark in remarks] == [Kind.PASSED] * case.count


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("function", "specs", "full"), GRADIENTS, ids=lambda value: getattr(value, "__name__", value))
def test_gradients(function: Callable[..., Tensor], specs: str, full: str, machine: Machine) -> None:
    """Without float64 in the program there is none afterwards on a machine where it is slow."""
    remarks = check(gradient(function), specs, full, machine)
    assert all(remark.kind is Kind.PASSED for remark in remarks)


@pytest.mark.parametrize(
    ("function", "specs", "dots"),
    [
        (kernel, "17x5xf32 19x5xf32", "[17, 6] [19, 6]"),
        (columns, "5x17xf32 5x19xf32", "[6, 17] [6, 19]"),
        (kernel, "17x40xf32 19x40xf32", ""),
    ],
    ids=["rows", "columns", "long rows"],
)
def test_the_sums_of_a_gradient_are_columns_of_its_dots(function: Callable[..., Tensor], specs: str, dots: str) -> None:
    """Those of its weights in float64, of 17 x 19, which are read twice and not four times. Longer rows gain nothing."""
    before = export_program(Program("case", gradient(function), specs))
    after, _ = rewrite(before)
    joined = re.findall(r"concatenate.* -> tensor<(\d+)x(\d+)xf64>", after)
    assert sorted(joined) == sorted(re.findall(r"(\d+), (\d+)", dots))
    sums = re.findall(r"reduce\(.*: \(tensor<17x19xf(?:32|64)>", after)
    assert bool(sums) == (not dots)


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ("17x5xf32 19x5xf32 17x19xf32", "added up for each of 5 elements"),
        ("17x40xf32 90x40xf32 17x90xf32", "added up for each of 17 elements"),
        ("90x40xf32 17x40xf32 90x17xf32", "added up from 17 elements"),
        ("33x40xf32 90x40xf32 33x90xf32", "multiplied"),
    ],
    ids=["short rows", "few points", "of few points", "long rows"],
)
def test_sums_are_taken_one_by_one_where_float64_is_slow(specs: str, text: str) -> None:
    """Of few numbers for each weight, or for or of few points: what a CPU takes in float64."""
    before = export_program(Program("case", pushed, specs))
    (remark,) = rewrite(before, machine=GPU)[1]
    assert text in remark.message


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 20), st.integers(2, 20), st.integers(2, 40), st.sampled_from([squared, added, kernel]))
def test_any_sizes(n: int, m: int, d: int, function: Callable[..., Tensor]) -> None:
    before = export_program(Program("case", function, f"{n}x{d}xf32 {m}x{d}xf32"))
    after, _ = rewrite(before, threshold=1)
    assert (f"{n}x{m}x{d}x" not in after) == (min(n, m, d) >= 2)
    assert ("dot_general" in after) == (min(n, m) >= 2 and d > FEW)
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


def test_narrow_numbers_are_added_up_in_the_type_of_the_sum() -> None:
    """As jax has it: bfloat16 is converted to float32 for the sum alone, where float64 is slow as well."""
    before = export_program(Program("case", pushed, "100x3xbf16 80x3xbf16 100x80xbf16"))
    after, (remark,) = rewrite(before, machine=GPU)
    assert "added up for each of 3 elements" in remark.message
    assert re.findall(r"reduce\(.*, tensor<(\w+)>\)", after) == 3 * ["f32"]
    assert_equal_results(before, after)


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("width", [3, 30])
def test_weights_that_differ_by_orders_of_magnitude(machine: Machine, width: int) -> None:
    """A singular kernel's gradient: the pairs that nearly coincide have weights a million times the others'."""
    generator = np.random.default_rng(0)
    places = generator.standard_normal((60, width)).astype(np.float32)
    weights = np.where(np.eye(60), 1e6, generator.random((60, 60))).astype(np.float32)
    before = export_program(Program("case", pushed, f"60x{width}xf32 60x{width}xf32 60x60xf32"))
    after, remarks = rewrite(before, machine=machine)
    assert remarks[0].kind is Kind.PASSED
    arrays = [places, places, weights]
    assert compare(run_module(before, arrays)[0], run_module(after, arrays)[0]).passed


@pytest.mark.parametrize("axis", [0, 1, (0, 1), (0, 2), (1, 2), None], ids=str)
@pytest.mark.parametrize("shape", [(20, 200, 70), (200, 20, 70), (60, 60, 30), (25, 25, 60)], ids=str)
def test_sums_without_float64_are_as_exact_as_those_of_the_original(
    shape: tuple[int, int, int], axis: int | tuple[int, int] | None
) -> None:
    """For a GPU: few numbers for each weight, or few points with long rows, whichever of these are added up as well."""
    points, others, width = shape
    generator = np.random.default_rng(1)
    places = generator.standard_normal((points, width)).astype(np.float32)
    near = np.resize(places, (others, width)) + 1e-3 * generator.standard_normal((others, width)).astype(np.float32)
    near = near.astype(np.float32)
    same = np.arange(points)[:, None] % min(points, others) == np.arange(others) % min(points, others)
    weights = np.where(same, 1e6, generator.random((points, others))).astype(np.float32)

    def pulled(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return jnp.sum(w[:, :, None] * (a[:, None, :] - b[None, :, :]), axis=axis)

    specs = f"{points}x{width}xf32 {others}x{width}xf32 {points}x{others}xf32"
    before = export_program(Program("case", pulled, specs))
    after, remarks = rewrite(before, machine=GPU)
    assert remarks[0].kind is Kind.PASSED and "f64" not in after
    arrays = [places, near, weights]
    a, b, w = (each.astype(np.float64) for each in arrays)
    terms = w[:, :, None] * (a[:, None] - b[None])
    errors = [np.abs(run_module(text, arrays)[0] - terms.sum(axis)).max() for text in (before, after)]
    # In another order a sum may be off by a few roundings of its terms, multiplied out by a hundred times as many.
    few = 3 * np.finfo(np.float32).eps * np.abs(terms).sum(axis).max()
    assert errors[1] <= max(3 * errors[0], few)


@pytest.mark.parametrize("width", [8, 40])
@pytest.mark.parametrize("far", [1e3, 1e5, 1e9])
def test_a_point_far_away_does_not_disturb_the_others(width: int, far: float) -> None:
    """Rows that only pad a cloud are often put where every kernel is zero."""
    generator = np.random.default_rng(0)
    points, others = (0.1 * generator.standard_normal((n, width)).astype(np.float32) for n in (100, 90))
    others[29], others[70:] = far, -far
    specs = f"100x{width}xf32 90x{width}xf32"
    for function in (kernel, gradient(kernel)):
        before = export_program(Program("case", function, specs))
        after, remarks = rewrite(before)
        assert {remark.kind for remark in remarks} == {Kind.PASSED}
        arrays = [points, others]
        for expected, actual in zip(run_module(before, arrays), run_module(after, arrays), strict=True):
            assert compare(expected, actual).passed


def test_long_chains_take_no_long_time() -> None:
    """Each value is read twice: without memory the work would double with every step."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(60):
            x = x + jnp.tanh(x) * x
        return x.sum(1)

    before = export_program(Program("case", chain, "40x40xf32"))
    assert rewrite(before)[0]


@pytest.mark.parametrize("function", [halved, negated, divided_square, weighted_product], ids=lambda f: f.__name__)
def test_a_sum_of_squares_keeps_its_sign(function: Callable[..., Tensor]) -> None:
    """The distances of points from themselves, in many dimensions and far from the origin: a root of them is no NaN."""
    generator = np.random.default_rng(0)
    points = (100 + generator.standard_normal((40, 64))).astype(np.float32)
    weights = np.linspace(0.5, 2, 64).astype(np.float32)
    arrays = [points, points, weights][: 3 if function in (divided_square, weighted_product) else 2]
    before = export_program(Program("case", function, " ".join(["40x64xf32", "40x64xf32", "64xf32"][: len(arrays)])))
    after, remarks = rewrite(before)
    assert [remark.kind for remark in remarks] == [Kind.PASSED]
    rewritten = run_module(after, arrays)[0]
    assert ((rewritten <= 0) if function is negated else (rewritten >= 0)).all()
    if function is weighted_product:
        assert (run_module(after, [*arrays[:2], -weights])[0] <= 0).all()
        mixed = [*arrays[:2], weights - 1]
        assert compare(run_module(before, mixed)[0], run_module(after, mixed)[0]).passed


def far_weights(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return jnp.sum(jnp.abs(w)[:, None, :] * jnp.abs(w)[None, :, :1] * apart(a, b) ** 2, axis=-1)


def two_squares(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(apart(a, b) ** 2 + 0.5 * apart(a + 1, b + 1) ** 2, axis=-1)


def turned_product(a: Tensor, b: Tensor) -> Tensor:
    return jnp.sum(apart(a, b) * -(b[None, :, :] - a[:, None, :]), axis=-1)


@pytest.mark.parametrize("function", [far_weights, two_squares, turned_product], ids=lambda f: f.__name__)
def test_what_is_no_plain_square_keeps_its_sign(function: Callable[..., Tensor]) -> None:
    """Several weights, a sum of squares, and a square that is not seen as one: bounded, or left alone."""
    generator = np.random.default_rng(0)
    points = (100 + generator.standard_normal((40, 40))).astype(np.float32)
    arrays = [points, points, points][: 3 if function is far_weights else 2]
    before = export_program(Program("case", function, " ".join(["40x40xf32"] * len(arrays))))
    after, remarks = rewrite(before)
    assert {remark.kind for remark in remarks} == {Kind.MISSED if function is turned_product else Kind.PASSED}
    assert (run_module(after, arrays)[0] >= 0).all()


def overflowing(name: str) -> Callable[..., Tensor]:
    """A sum of integers whose terms leave the range of their type, or of a float's digits."""

    def of(a: Tensor, b: Tensor) -> Tensor:
        x, y = (each.astype(name) for each in (a, b))
        big = jnp.asarray(np.iinfo(name).max // 2 + 2, name)
        apart = x[:, None, :] - big * y[None, :, :]
        return (apart * apart).sum(-1, dtype=name), (apart * big + x[:, None, :]).sum(0, dtype=name)

    return of


@pytest.mark.parametrize("name", ["int64", "int32", "int16", "int8", "uint8", "uint32", "uint64"])
def test_integers_are_exact_modulo_their_range(name: str) -> None:
    before = export_program(Program("case", overflowing(name), "20x7xi64 30x7xi64"))
    after, remarks = rewrite(before)
    assert [remark.kind for remark in remarks] == [Kind.PASSED, Kind.PASSED]
    arrays = random_arguments(before)
    for original, rewritten in zip(run_module(before, arrays), run_module(after, arrays), strict=True):
        np.testing.assert_array_equal(original, rewritten)


def test_truth_values_are_left_alone() -> None:
    text = """
      func.func @main(%a: tensor<40x5xi1>, %b: tensor<50x5xi1>) -> tensor<40x50xi1> {
        %no = stablehlo.constant dense<false> : tensor<i1>
        %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<40x5xi1>) -> tensor<40x50x5xi1>
        %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<50x5xi1>) -> tensor<40x50x5xi1>
        %2 = stablehlo.multiply %0, %1 : tensor<40x50x5xi1>
        %3 = stablehlo.reduce(%2 init: %no) applies stablehlo.add across dimensions = [2] : (tensor<40x50x5xi1>, tensor<i1>) -> tensor<40x50xi1>
        return %3 : tensor<40x50xi1>
      }"""
    after, remarks = rewrite(text)
    assert "dot_general" not in after
    assert remarks[0].message == "not multiplied out: its element type is i1"


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
        (cubed, LONG, "its exponent is not 2"),
        (largest, LONG, "its reducer is maximum, not add"),
        (returned, AB, "func.return needs a tensor of its full shape as well"),
        (squared, "17x5xcomplex 13x5xcomplex".replace("complex", "c64"), "its element type is complex<f32>"),
        (with_start, AB, "it does not start from 0"),
        (lambda a, b: jnp.sum(0 * apart(a, b), axis=-1), LONG, "would be lost"),
        (lambda a, b: jnp.sum(apart(a, b) ** 2 * jnp.inf, axis=-1), LONG, "would be lost"),
        (lambda a, b: jnp.sum(a[:, None] * b[None] - b[None] * a[:, None], axis=-1), LONG, "would be lost"),
        (lambda a, b, c: jnp.sum((apart(a, b) + c[0]) ** 2, dtype="float64"), f"{AB} 1xf64", "convert is not"),
        (
            lambda a, b: jnp.sum(lax.div(a[:, None] * b[None], jnp.full((17, 13, 5), 2)) * 2, axis=-1),
            "17x5xi32 13x5xi32",
            "divide is not",
        ),
        (one_number, "170x1xf32 130x1xf32", "the expansion needs a tensor as big"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_stays_as_it_is(function: Callable[..., Tensor], specs: str, reason: str) -> None:
    before = export_program(Program("case", function, specs))
    after, remarks = rewrite(before)
    assert "dot_general" not in after
    assert [remark.kind for remark in remarks] == [Kind.MISSED] * len(remarks)
    assert any(reason in remark.text for remark in remarks) if reason else not remarks


FEW_OF_ANY_FORMULA: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l1": lambda a, b: jnp.abs(a - b).sum(-1),
    "lp": lambda a, b: (jnp.abs(a - b) ** 1.5).sum(-1),
    "chebyshev": lambda a, b: jnp.abs(a - b).max(-1),
    "smallest": lambda a, b: (a * jnp.tanh(b)).min(-1),
    "smallest below a bound": lambda a, b: jax.lax.reduce_min(jnp.append(a - b, jnp.full_like(a - b, 0.1), 2), (2,)),
    "canberra": lambda a, b: (jnp.abs(a - b) / (jnp.abs(a) + jnp.abs(b) + 0.1)).sum(-1),
    "weighted": lambda a, b: (jnp.arange(1.0, a.shape[-1] + 1) * jnp.abs(a - b)).sum(-1),
    "of a product": lambda a, b: jnp.exp(-a * b).sum(-1),
}


@pytest.mark.parametrize("name", FEW_OF_ANY_FORMULA)
@pytest.mark.parametrize("k", [2, 3, FEW, FEW + 1])
def test_few_elements_of_any_formula_are_combined_one_by_one(name: str, k: int) -> None:
    function = FEW_OF_ANY_FORMULA[name]
    program = Program(name, lambda a, b: function(a[:, None], b[None]), f"40x{k}xf32 30x{k}xf32")
    before = export_program(program)
    after, remarks = rewrite(before)
    few = k <= FEW and name != "smallest below a bound"
    assert (f"tensor<40x30x{k}xf32>" not in after) == few
    assert any(remark.code == "EX004" for remark in remarks) == few
    assert_equal_results(before, after)
    arrays = [np.asarray(x) for x in random_arguments(before)]
    arrays[1][4, k - 1], arrays[1][5, 0] = np.inf, -np.inf
    if "est" not in name and name != "chebyshev":  # XLA:CPU loses a NaN in the largest of some
        arrays[0][3, 0] = np.nan
    [expected], [actual] = (run_module(text, arrays) for text in (before, after))
    comparison = compare(expected, actual)
    assert comparison.passed, comparison.problem


def l1(a: Tensor, b: Tensor) -> Tensor:
    return jnp.abs(a[:, None] - b[None]).sum(-1)


def chosen_by_sign(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    apart = a[:, None, :] - b[None, :, :]
    return jnp.where(apart > 0.1, jnp.sin(apart), w[:, :, None]).sum(0)


def clipped_in_batches(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    apart = a[:, :, None, :] - b[:, None, :, :]
    return jnp.einsum("bij,bijk->bik", w, jnp.clip(apart, -1, 1))


BY_COLUMN = [
    (gradient(lambda a, b: jnp.exp(-l1(a, b))), "37x3xf32 53x3xf32", "37x53x3x"),
    (gradient(lambda a, b: jnp.exp(-l1(a, b))), f"37x{FEW}xf64 53x{FEW}xf64", f"37x53x{FEW}x"),
    (gradient(lambda a: jnp.exp(-l1(a, a))), "37x3xf32", "37x37x3x"),
    (gradient(lambda a, b: (jnp.abs(a[:, None] - b[None]) ** 1.5).sum(-1)), "37x3xf32 53x3xf32", "37x53x3x"),
    (chosen_by_sign, "37x3xf32 53x3xf32 37x53xf32", "37x53x3x"),
    (clipped_in_batches, "2x37x3xf32 2x53x3xf32 2x37x53xf32", "2x37x53x3x"),
]


@pytest.mark.parametrize(("function", "specs", "full"), BY_COLUMN)
def test_sums_of_any_formula_are_taken_column_by_column(function: Callable[..., Tensor], specs: str, full: str) -> None:
    """With weights that the columns share; all of it stays where a machine fuses the sums anyway."""
    before = export_program(Program("columns", function, specs))
    assert f"tensor<{full}f" in before
    after, remarks = rewrite(before, threshold=4000)
    assert f"tensor<{full}" not in after
    assert any("for each of" in remark.message for remark in remarks)
    assert rewrite(after, threshold=4000)[0] == after
    assert_equal_results(before, after)
    assert f"tensor<{full}" in rewrite(before, threshold=4000, machine=GPU)[0]


@pytest.mark.parametrize(
    ("function", "specs"),
    [
        (chosen_by_sign, f"37x{FEW + 1}xf32 53x{FEW + 1}xf32 37x53xf32"),
        (lambda a, b: jnp.abs(a[:, None] - b[None]).sum(0), "37x3xf32 53x3xf32"),
        (lambda a, b, w: (jnp.abs(a[:, None] - b[None]) * w).sum(0), "37x3xf32 53x3xf32 37x53x3xf32"),
        (lambda a, b, w: (jnp.abs(a[:, None] - b[None]) * w[..., None]).sum(0), "37x3xi32 53x3xi32 37x53xi32"),
    ],
    ids=["many columns", "no weights", "a full tensor", "integers"],
)
def test_no_columns(function: Callable[..., Tensor], specs: str) -> None:
    before = export_program(Program("columns", function, specs))
    assert "x53x" in before
    assert all(remark.kind is Kind.MISSED for remark in rewrite(before, threshold=4000)[1])


def test_a_reduce_of_no_dimension_stays() -> None:
    """XLA returns its operand, whatever the init is."""
    program = Program(
        "nothing", lambda a, b: lax.reduce(a[:, None] - b[None], jnp.float32(1), lax.max, ()), "40xf32 30xf32"
    )
    before = export_program(program)
    after, remarks = rewrite(before)
    assert not any(remark.kind is Kind.PASSED for remark in remarks)
    assert_equal_results(before, after)
