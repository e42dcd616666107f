"""Products of all steps at once, that the loop which reads them computes step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from tests.execute import assert_equal_results

STEPS, ROWS, WIDTH, WIDE = 16, 16, 16, 64


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def light(xs: Any) -> Any:
    """A loop whose steps do hardly anything."""
    return lax.scan(lambda h, x: (jnp.tanh(h + x), None), jnp.zeros(xs.shape[1:]), xs)[0]


def scan(xs: Any) -> Any:
    """A loop whose steps multiply large matrices."""

    def step(carry: Any, x: Any) -> Any:
        h, matrix = carry
        return (jnp.tanh(h + x), matrix @ matrix / 512), None

    (h, matrix), _ = lax.scan(step, (jnp.zeros(xs.shape[1:]), jnp.ones((512, 512))), xs)
    return h + matrix[0, 0]


X, W = f32(STEPS, ROWS, WIDTH), f32(WIDTH, WIDE)
# A program, its arguments, and whether steps compute the product.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...], bool]] = {
    "a layer before the loop": (lambda x, w: scan(jnp.sin(x) @ w), (X, W), True),
    "a reverse loop": (lambda x, w: scan((x @ w)[::-1]), (X, W), True),
    "two products, one of the other": (lambda x, w, v: scan(x @ w @ v), (X, W, f32(WIDE, WIDE)), True),
    "several rows and features": (
        lambda x, w: scan(jnp.einsum("tabi,ijk->tabjk", x, w)),
        (f32(STEPS, 4, 4, WIDTH), f32(WIDTH, 8, 8)),
        True,
    ),
    "by a scalar": (lambda x, w: scan(lax.dot_general(x, w, (((), ()), ((), ())))), (f32(STEPS, 16, 64), f32()), True),
    "in steps that do little else": (lambda x, w: light(x @ w), (f32(STEPS, 16, 1024), f32(1024, 1024)), False),
    "in steps that do more": (lambda x, w: scan(x @ w), (f32(STEPS, 16, 64), f32(64, 128)), True),
    "summed over steps": (lambda x, w: scan(jnp.einsum("tri,tj->rij", x, w)), (X, f32(STEPS, WIDE)), False),
    "read as a whole too": (lambda x, w: scan(x @ w) + (x @ w).max(0), (X, W), False),
    "of one tensor with its own rows": (lambda x: scan(jnp.einsum("tri,sqi->trsq", x, x)), (f32(8, 16, 16),), True),
    "of two functions of one tensor": (
        lambda x: scan(jnp.einsum("tri,sqi->trsq", jnp.sin(x), jnp.sin(x) * 2)),
        (f32(8, 16, 16),),
        True,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_that_steps_compute(name: str) -> None:
    function, arguments, is_moved = PROGRAMS[name]
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    module = parse_module(name, text.encode(), new_context()).module
    run_pipeline(module, ("normalise", "loop-residuals", "normalise"), Options(size_threshold=16_000))
    made = serialise(module, "text").decode()
    whole = made[: made.index("stablehlo.while")] + made[made.index("stablehlo.return %", made.index(" do {")) :]
    assert ("stablehlo.dot_general" not in whole) == is_moved
    assert_equal_results(text, made)
