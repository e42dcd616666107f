"""A maximum is recomputed together with what it was taken of, so that rounding does not become an exponent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function, operations_of, walk_regions
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.recompute.kernels import read_schedule
from exla_opt.passes.recompute.maxima import find_maxima
from exla_opt.pipeline import run_pipeline
from tests.execute import assert_equal_results

LAYERS, ROWS, WIDTH = 8, 512, 64
# One unit in the last place of such a score is a sixteenth.
SCALE = 1e6


@pytest.fixture(autouse=True)
def context() -> Iterator[ir.Context]:
    with new_context() as made:
        yield made


def normalised(x: Any) -> Any:
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def scores(rows: Any, weight: Any) -> Any:
    return SCALE * (normalised(rows @ weight) @ (weight / 8))


def by_softmax(weights: Any, rows: Any) -> Any:
    for one, other in weights:
        rows = rows + jax.nn.softmax(scores(rows, one)) @ other
    return (rows * rows).sum()


def by_logarithms(weights: Any, rows: Any) -> Any:
    """The maximum is read by a sum that is only read by its logarithm."""
    total: Any = 0.0
    for one, other in weights:
        each = scores(rows, one)
        total = total + jax.nn.logsumexp(each, -1).sum() / SCALE
        rows = rows + jax.nn.log_softmax(each) @ other / SCALE
    return (rows * rows).sum() + total


def by_minimum(weights: Any, rows: Any) -> Any:
    for one, other in weights:
        each = scores(rows, one)
        weight = jnp.exp(jax.lax.stop_gradient(each.min(-1, keepdims=True)) - each)
        rows = rows + (weight / weight.sum(-1, keepdims=True)) @ other
    return (rows * rows).sum()


def by_norms(weights: Any, rows: Any) -> Any:
    """Statistics without a maximum."""
    for one, other in weights:
        rows = rows + jnp.tanh(normalised(rows @ one)) @ other
    return (rows * rows).sum()


def exported(program: Callable[..., Any]) -> ir.Module:
    square = jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32")
    rows = jax.ShapeDtypeStruct((ROWS, WIDTH), "float32")
    lowered = jax.jit(jax.grad(program)).lower([(square, square)] * LAYERS, rows)
    module = ir.Module.parse(str(lowered.compiler_ir("stablehlo")))
    run_pipeline(module, ("normalise", "rce"), Options())
    return module


def recomputed(module: ir.Module, part: float) -> ir.Module:
    """The module with a limit of a part of its temporaries."""
    memory = predict(module)
    limit = memory.peak - memory.temp + int(part * memory.temp)
    after = ir.Module.parse(str(module))
    run_pipeline(after, ("recompute", "normalise"), Options(memory_limit=limit))
    return after


@pytest.mark.parametrize("part", (0.2, 0.4, 0.6))
@pytest.mark.parametrize("program", (by_softmax, by_logarithms, by_minimum, by_norms))
def test_results_are_equal_with_large_scores(program: Callable[..., Any], part: float) -> None:
    before = exported(program)
    after = recomputed(before, part)
    assert str(after) != str(before)
    assert_equal_results(before, after)


@pytest.mark.parametrize("program", (by_softmax, by_logarithms, by_minimum))
def test_no_recomputed_score_meets_a_stored_maximum(program: Callable[..., Any]) -> None:
    after = recomputed(exported(program), 0.4)
    exponents = [op for op in walk_regions(main_function(after).regions[0].blocks[0]) if "exponential" in op.name]
    inside = [op for op in exponents if op.parent is not None and op.parent.name == "stablehlo.while"]
    assert inside
    assert all("stablehlo.reduce" in {each.name for each in operations_of(op.block)} for op in inside)


def test_statistics_without_a_maximum_may_be_stored() -> None:
    module = exported(by_norms)
    block = main_function(module).regions[0].blocks[0]
    schedule, _ = read_schedule(main_function(module), Types(), CPU)
    assert schedule.peak is not None
    assert find_maxima(block, schedule, schedule.peak) == {}


def test_what_only_a_gradient_after_the_peak_computes_is_none() -> None:
    module = exported(by_softmax)
    schedule, _ = read_schedule(main_function(module), Types(), CPU)
    assert schedule.peak is not None
    found = find_maxima(main_function(module).regions[0].blocks[0], schedule, schedule.peak)
    assert len(found) >= 2 * LAYERS  # a maximum and a sum
    assert all(schedule.producer[value] <= schedule.peak for value in found)
