"""Sums of several big tensors: each term is added once it is there, with equal results and less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

ROWS, COLUMNS, LAYERS = 1024, 512, 6
TERM = 4 * ROWS * COLUMNS
LOOP = "stablehlo.while"


def shared_bias(bias: Any, x: Any, w: Any) -> Any:
    """The gradients of a bias that all layers add to."""

    def loss(bias: Any) -> Any:
        y = x
        for _ in range(LAYERS):
            y = jnp.tanh((y + bias) @ w / 16)
        return (y**2).sum()

    return jax.grad(loss)(bias)


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
    return shared_bias(bias[: ROWS - 1, : COLUMNS - 1], x[: ROWS - 1, : COLUMNS - 1], w[: COLUMNS - 1, : COLUMNS - 1])


PROGRAMS = (shared_bias, dense_connections, in_a_loop, odd_rows)


def exported(program: Callable[..., Any], dtype: str = "float32") -> str:
    shapes = ((ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS, COLUMNS))
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return str(jax.jit(program).lower(*arguments).compiler_ir("stablehlo"))


def rewritten(text: str, passes: tuple[str, ...] = ("normalise", "early-sums", "normalise"), **options: Any) -> str:
    """limit: the part of the predicted temporaries that is allowed."""
    part = options.pop("part", 0.5)
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        memory = predict(module)
        limit = None if part is None else memory.peak - memory.temp + int(part * memory.temp)
        run_pipeline(module, passes, Options(memory_limit=limit, **options))
        return serialise(module, "text").decode()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_terms_do_not_wait(program: Callable[..., Any]) -> None:
    before = exported(program)
    after = rewritten(before)
    assert after.count(LOOP) > before.count(LOOP)
    assert_equal_results(before, after)
    assert measure_memory(after).temp <= measure_memory(before).temp + TERM // 100


def test_the_gradients_of_a_shared_bias_take_the_memory_of_one() -> None:
    """Behind the activations, which stay: five gradients waited for the last."""

    def backward(bias: Any, x: Any, w: Any) -> Any:
        total, y = jnp.zeros_like(bias), x
        for _ in range(LAYERS):
            y = jnp.tanh(y @ w / 16)
            total = total + (y @ w) * bias
        return total.sum(1), y.sum()

    before = exported(backward)
    after = rewritten(before)
    assert measure_memory(after).temp <= measure_memory(before).temp - 2.9 * TERM
    assert_equal_results(before, after)


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({"part": None}, "float32"), ({"part": 1.0}, "float32"), ({"reassociate": False}, "float32"), ({}, "bfloat16")],
)
def test_otherwise_nothing_is_done(options: dict[str, Any], dtype: str) -> None:
    before = exported(shared_bias, dtype)
    assert LOOP not in rewritten(before, **options)


@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.kind)
def test_it_is_for_a_cpu(machine: Machine) -> None:
    assert (LOOP in rewritten(exported(shared_bias), machine=machine)) == (machine is CPU)
