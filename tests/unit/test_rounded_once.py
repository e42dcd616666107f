"""Positions that a loop of tiles rounds for an index and for a weight: XLA:CPU must compute them once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.ndimage import map_coordinates
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.machine import GPU
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from tests.execute import run_module

Array = Any
_N = 160
_ROUNDINGS = ("stablehlo.floor", "stablehlo.ceil", "stablehlo.round_nearest_even", "stablehlo.convert")
_OPTIONS = Options(size_threshold=400_000, split_size=60_000)


def positions(angle: Array) -> tuple[Array, Array]:
    """Those of a turned image. At a right angle all are integers but for rounding."""
    y, x = jnp.meshgrid(jnp.arange(float(_N)) - _N / 2, jnp.arange(float(_N)) - _N / 2, indexing="ij")
    c, s = jnp.cos(angle), jnp.sin(angle)
    return c * y - s * x + _N / 2, s * y + c * x + _N / 2


def read(image: Array, y: Array, x: Array) -> Array:
    return image[:, jnp.clip(y, 0, _N - 1).astype(int), jnp.clip(x, 0, _N - 1).astype(int)]


def interpolated(image: Array, angle: Array, down: Callable[[Array], Array]) -> Array:
    y, x = positions(angle)
    row, column = down(y), down(x)
    v, u = y - row, x - column
    above = read(image, row, column) * (1 - u) + read(image, row, column + 1) * u
    below = read(image, row + 1, column) * (1 - u) + read(image, row + 1, column + 1) * u
    return (above * (1 - v) + below * v).sum(1)


def with_floor(image: Array, angle: Array) -> Array:
    return interpolated(image, angle, jnp.floor)


def with_integers(image: Array, angle: Array) -> Array:
    return interpolated(image, angle, lambda c: (c + _N).astype(jnp.int32) - _N)


def of_the_library(image: Array, angle: Array) -> Array:
    y, x = positions(angle)
    return jax.vmap(lambda i: map_coordinates(i, [y, x], order=1, mode="nearest"))(image).sum(1)


def nearest(image: Array, angle: Array) -> Array:
    """No weight: whichever neighbour is read, it is read as a whole."""
    y, x = positions(angle)
    return read(image, jnp.round(y), jnp.round(x)).sum(1)


def quantised(image: Array, angle: Array) -> Array:
    """No index."""
    return (image * angle - jnp.floor(image * angle)).sum(1)


def outlier(image: Array, angle: Array) -> Array:
    """Weights by positions that an expensive op computes, which XLA:CPU computes once."""
    y = jnp.sqrt(jnp.arange(float(_N))[:, None] * jnp.arange(float(_N)) + angle**2)
    return ((y - jnp.floor(y)) * read(image, jnp.floor(y), jnp.floor(y))).sum(1)


def text_of(function: Callable[[Array, Array], Array]) -> str:
    arguments = jax.ShapeDtypeStruct((24, _N, _N), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
    return str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))


def split(text: str, options: Options = _OPTIONS) -> str:
    with new_context():
        module = ir.Module.parse(text)
        run_pipeline(module, DEFAULT_PASSES, options)
        assert any(op.name == "stablehlo.while" for op in walk_functions(module.operation))
        return str(module)


def roundings(text: str) -> list[tuple[bool, bool]]:
    """For each rounding of floats: whether it is of a quotient, and whether it is in a loop."""
    with new_context():
        module = ir.Module.parse(text)
        return [
            (
                defining_op(op.operands[0], "stablehlo.divide") is not None,
                isinstance(op.parent, ir.OpView | ir.Operation) and op.parent.name == "stablehlo.while",
            )
            for op in walk_functions(module.operation)
            if op.name in _ROUNDINGS and "f32" in str(op.operands[0].type) and len(op.operands[0].type.shape) > 0
        ]


def assert_as_in_float64(function: Callable[[Array, Array], Array], text: str, angle: float) -> None:
    """Where a position is an integer but for rounding, either neighbour is right, with its own weight.

    The program as written is no measure: XLA gets some of its sums wrong too.
    """
    image, turn = np.random.default_rng(3).normal(size=(24, _N, _N)).astype(np.float32), np.full((), angle, np.float32)
    with jax.enable_x64():
        expected = np.asarray(jax.jit(function)(image.astype(np.float64), turn.astype(np.float64)))
    [actual] = run_module(text, [image, turn])
    # A position is off by a few units in the last place, and a sum by as many differences of two neighbours.
    tolerance = 4 * _N * np.finfo(np.float32).eps * np.abs(np.diff(image)).sum(1).max()
    np.testing.assert_allclose(actual, expected, atol=tolerance)


@pytest.mark.parametrize("function", [with_floor, with_integers, of_the_library])
def test_positions_are_divided_by_one(function: Callable[[Array, Array], Array]) -> None:
    text = text_of(function)
    smaller = split(text)
    found = [divided for divided, inside in roundings(smaller) if inside]
    assert found
    assert any(found)
    with new_context():
        before, after = ir.Module.parse(text), ir.Module.parse(smaller)
        count = [sum(op.name == "stablehlo.divide" for op in walk_functions(m.operation)) for m in (before, after)]
    assert count[1] == count[0] + 2


@pytest.mark.parametrize("function", [with_floor, with_integers, of_the_library])
@pytest.mark.parametrize("angle", [0.0, np.pi / 2, 2.7])
def test_interpolated_sums_are_right(function: Callable[[Array, Array], Array], angle: float) -> None:
    assert_as_in_float64(function, split(text_of(function)), angle)


@pytest.mark.parametrize("function", [nearest, quantised, outlier])
def test_others_are_left_alone(function: Callable[[Array, Array], Array]) -> None:
    found = roundings(split(text_of(function)))
    assert found
    assert not any(divided for divided, _ in found)


def test_the_last_tile_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another length than the others: it is a copy of the body behind the loop."""
    monkeypatch.setattr(f"{__name__}._N", 157)
    smaller = split(text_of(with_floor))
    assert {inside for divided, inside in roundings(smaller) if divided} == {True, False}
    assert_as_in_float64(with_floor, smaller, 2.7)


def test_a_gpu_computes_as_it_did() -> None:
    found = roundings(split(text_of(with_floor), replace(_OPTIONS, machine=GPU)))
    assert found
    assert not any(divided for divided, _ in found)
