"""Sums of several big tensors: each term is added once it is there, with equal results and less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.budget.fit import fit
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.recompute.sums import find_sums
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

ROWS, COLUMNS, LAYERS = 1024, 512, 6
TERM = 4 * ROWS * COLUMNS
SUM = "EX016"


def terms(bias: Any, x: Any, w: Any) -> Any:
    """Each layer adds a tensor, and nothing else is held."""
    total, y = jnp.zeros_like(bias), x
    for _ in range(LAYERS):
        y = jnp.tanh(y @ w / 16)
        total = total + (y @ w) * bias
    return total.sum(1), y.sum()


def dense_connections(bias: Any, x: Any, w: Any) -> Any:
    """All layers before are added, but each is also read by the next layer."""
    total, y = x, x
    for _ in range(LAYERS):
        y = jnp.tanh(y @ w / 16)
        total = total + y * bias
    return jnp.sin(total) @ w


def in_a_loop(bias: Any, x: Any, w: Any) -> Any:
    """The sum begins with what a loop carries."""

    def body(total: Any, scale: Any) -> Any:
        y = x * scale
        for _ in range(LAYERS):
            y = jnp.tanh(y @ w / 16)
            total = total + y @ w
        return total, None

    return jax.lax.scan(body, bias, jnp.linspace(0.5, 1.5, 3))[0]


def odd_rows(bias: Any, x: Any, w: Any) -> Any:
    """Rows are divided into three parts."""
    return terms(bias[: ROWS - 1, : COLUMNS - 1], x[: ROWS - 1, : COLUMNS - 1], w[: COLUMNS - 1, : COLUMNS - 1])


PROGRAMS = (terms, dense_connections, in_a_loop, odd_rows)


def exported(program: Callable[..., Any], dtype: str = "float32") -> str:
    shapes = ((ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS, COLUMNS))
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return str(jax.jit(program).lower(*arguments).compiler_ir("stablehlo"))


def rewritten(text: str, **options: Any) -> tuple[str, list[str]]:
    """The module after recompute, and the codes of its remarks. part: of the predicted temporaries, is allowed."""
    part = options.pop("part", 0.7)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        memory = predict(module)
        limit = None if part is None else memory.peak - memory.temp + int(part * memory.temp)
        outcome = run_pipeline(module, ("recompute", "normalise"), Options(memory_limit=limit, **options))
        return serialise(module, "text").decode(), [remark.code for remark in outcome.remarks]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_are_equal(program: Callable[..., Any]) -> None:
    before = exported(program)
    after, codes = rewritten(before)
    assert SUM in codes
    assert_equal_results(before, after)
    assert measure_memory(after).temp <= measure_memory(before).temp


def test_terms_take_the_memory_of_one() -> None:
    before = exported(terms)
    after, codes = rewritten(before)
    assert codes == [SUM]
    saved = 1.9 if jax.__version_info__ >= (0, 11) else 2.9  # a newer compiler has one more buffer in use at the peak
    assert measure_memory(after).temp <= measure_memory(before).temp - saved * TERM
    assert_equal_results(before, after)


def test_a_sum_that_is_a_term_of_another_one_is_computed_once() -> None:
    def both(bias: Any, x: Any, w: Any) -> Any:
        first, y = jnp.zeros_like(bias), x
        for _ in range(LAYERS):
            y = jnp.tanh(y @ w / 16)
            first = first + (y @ w) * bias
        second = first
        for _ in range(LAYERS):
            y = jnp.tanh(y @ w / 16)
            second = second + (y @ w) * bias
        return jnp.tanh(first) * second

    before = exported(both)
    after, codes = rewritten(before)
    assert codes.count(SUM) == 2
    assert_equal_results(before, after)
    assert measure_memory(after).temp < measure_memory(before).temp


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({"part": None}, "float32"),
        ({"part": 1.0}, "float32"),
        ({"reassociate": False}, "float32"),
        ({"machine": GPU}, "float32"),
        ({}, "bfloat16"),
    ],
)
def test_otherwise_nothing_is_done(options: dict[str, Any], dtype: str) -> None:
    assert SUM not in rewritten(exported(terms, dtype), **options)[1]


def test_terms_that_are_there_at_the_same_time_are_left_to_xla() -> None:
    """A polynomial is one kernel, and four arguments wait for nothing."""

    def polynomial(bias: Any, x: Any, w: Any) -> Any:
        y = x @ w
        many = [jnp.tanh(y @ w) for _ in range(3)]
        return sum(0.5**k * y**k for k in range(1, 8)) + bias + x, *many, y @ w + jnp.sin(y) @ w

    with new_context() as context:
        module = parse_module("<program>", exported(polynomial).encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        assert find_sums(module) == []


def test_the_search_keeps_a_program_that_only_adds_early() -> None:
    text = exported(terms)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        memory = predict(module)
        limit = memory.peak - int(0.3 * memory.temp)
        found = fit(module, ("normalise", "recompute", "normalise"), Options(), limit)
        assert found.fits
        assert [remark.code for remark in found.outcome.remarks] == [SUM]
