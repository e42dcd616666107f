"""Sums that loops carry, added up after them: the same bits, and a loop that the splitter can cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Remark
from exla_opt.runtime.compare import compare
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import interpret

Tensor = Any
Function = Callable[..., Any]

SIZE = 160
OPTIONS = Options(size_threshold=8_000, split_size=2_000)
ALONE = ("normalise", "late-sums", "normalise")
# The bytes of one matrix, of which none should be left.
MATRIX = 4 * SIZE * SIZE


def kernel(x: Tensor) -> Tensor:
    return jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1))


def conjugate_gradients(x: Tensor, y: Tensor) -> Tensor:
    def loss(scale: Tensor) -> Tensor:
        matrix = kernel(x * scale) + jnp.eye(SIZE)

        def step(state: Tensor, _: None) -> Tensor:
            s, r, p, rr = state
            q = matrix @ p
            a = rr / (p @ q)
            r = r - a * q
            return (s + a * p, r, r + (r @ r) / rr * p, r @ r), None

        (s, *_), _ = lax.scan(step, (jnp.zeros_like(y), y, y, y @ y), None, length=5)
        return s @ y

    return jax.value_and_grad(loss)(jnp.float32(0.7))


def power_iteration(x: Tensor, y: Tensor) -> Tensor:
    def loss(x: Tensor) -> Tensor:
        matrix = jnp.tanh(x @ x.T)

        def step(v: Tensor, _: None) -> Tensor:
            v = matrix @ v
            return v / jnp.linalg.norm(v), None

        v, _ = lax.scan(step, y, None, length=6)
        return v @ (matrix @ v)

    return jax.grad(loss)(x)


def page_rank(x: Tensor, y: Tensor) -> Tensor:
    def loss(w: Tensor) -> Tensor:
        matrix = jnp.abs((x * w)[:, :2] @ x[:, :2].T) / SIZE
        ranks, _ = lax.scan(lambda r, _: (0.85 * matrix @ r + 0.15 / SIZE, None), jnp.abs(y), None, length=5)
        return jnp.log(ranks).sum()

    return jax.grad(loss)(jnp.ones(x.shape[1]))


def two_matrices(x: Tensor, y: Tensor) -> Tensor:
    def loss(w: Tensor) -> Tensor:
        one, other = kernel(x * w), jnp.tanh((x * w) @ x.T)
        v, _ = lax.scan(lambda v, u: (jnp.sin(one @ v + other @ (u * v)), None), y, jnp.stack([y, y + 1, y - 1]))
        return v.sum()

    return jax.grad(loss)(jnp.ones(x.shape[1]))


def in_another_loop(x: Tensor, y: Tensor) -> Tensor:
    def outer(total: Tensor, w: Tensor) -> Tensor:
        return total + power_iteration(x * w, y).sum(), None

    return lax.scan(outer, jnp.float32(0), jnp.array([0.5, 1.5]))[0]


def fading_average(x: Tensor, y: Tensor) -> Tensor:
    """A sum that each step also halves, and subtracts from."""
    matrix = kernel(x)

    def step(state: Tensor, index: Tensor) -> Tensor:
        v, average = state
        v = jnp.sin(matrix @ v + index)
        return (v, 0.5 * average + jnp.where(v > 0, v, 0)[:, None] * y[None] - jnp.outer(y, v)), v.sum()

    (_, average), sums = lax.scan(step, (x[:, 0], jnp.ones((SIZE, SIZE))), jnp.arange(7.0))
    return jnp.tanh(average).sum(0), sums


def from_another_number(x: Tensor, y: Tensor) -> Tensor:
    """A loop that counts from 3, and a term that depends on its counter alone."""
    matrix = kernel(x)

    def step(i: Tensor, state: Tensor) -> Tensor:
        v, total = state
        return jnp.cos(matrix @ v + i), total + v[:, None] * lax.dynamic_index_in_dim(x, i, 1, keepdims=False)[None] * i

    v, total = lax.fori_loop(3, 7, step, (y, jnp.zeros((SIZE, SIZE))))
    return v, (total * total).sum(1)


def many_sums(x: Tensor, y: Tensor) -> Tensor:
    """Seventeen sums of products with one vector, which is stored once."""
    matrix = kernel(x)

    def step(state: Tensor, _: None) -> Tensor:
        v, *totals = state
        sums = [total + v[:, None] * (y + place)[None] for place, total in enumerate(totals)]
        return (jnp.sin(matrix @ v), *sums), None

    (v, *totals), _ = lax.scan(step, (y, *[jnp.zeros((SIZE, SIZE))] * 17), None, length=3)
    return v, sum(jnp.tanh(total).sum(1) for total in totals)


TAKEN = [
    conjugate_gradients,
    power_iteration,
    page_rank,
    two_matrices,
    in_another_loop,
    fading_average,
    from_another_number,
    many_sums,
]
SUMS = {two_matrices: 2, many_sums: 17}


def returned(x: Tensor, y: Tensor) -> Tensor:
    """The sum is a result."""
    matrix = kernel(x)
    step = lambda state, _: ((jnp.sin(matrix @ state[0]), state[1] + jnp.outer(state[0], y)), None)  # noqa: E731
    return lax.scan(step, (y, jnp.zeros((SIZE, SIZE))), None, length=5)[0]


def read_by_a_step(x: Tensor, y: Tensor) -> Tensor:
    """Each step reads the sum so far."""
    product = kernel(x)

    def step(state: Tensor, _: None) -> Tensor:
        v, total = state
        return (jnp.sin(product @ v + total.sum(0)), total + jnp.outer(v, y)), None

    v, total = lax.scan(step, (y, jnp.zeros((SIZE, SIZE))), None, length=5)[0]
    return v, total.sum()


def of_much(x: Tensor, y: Tensor) -> Tensor:
    """The terms are as big as the sum, and so is what they are computed from."""

    def step(state: Tensor, _: None) -> Tensor:
        matrix, total = state
        return (jnp.sin(matrix @ matrix), total + matrix), None

    matrix, total = lax.scan(step, (jnp.outer(y, y), jnp.zeros((SIZE, SIZE))), None, length=5)[0]
    return matrix.sum(), total.sum(1)


def of_dear_terms(x: Tensor, y: Tensor) -> Tensor:
    """The next state needs the terms as well, and they take an exponential each."""

    def step(state: Tensor, _: None) -> Tensor:
        v, total = state
        term = jnp.exp(-((v[:, None] - y[None]) ** 2))
        return (term.sum(1), total + term), None

    v, total = lax.scan(step, (y, jnp.zeros((SIZE, SIZE))), None, length=5)[0]
    return v, jnp.tanh(total).sum(0)


def until_it_is_large(x: Tensor, y: Tensor) -> Tensor:
    """The number of steps depends on the data."""
    matrix = kernel(x)

    def step(state: Tensor) -> Tensor:
        v, total = state
        return matrix @ jnp.abs(v) + 1, total + jnp.outer(v, y)

    v, total = lax.while_loop(lambda state: state[0][0] < 1e6, step, (y, jnp.zeros((SIZE, SIZE))))
    return v, total.sum(1)


def nothing_else(x: Tensor, y: Tensor) -> Tensor:
    """The loop does nothing but add."""
    total, _ = lax.scan(lambda t, u: (t + jnp.outer(u, y), None), jnp.zeros((SIZE, SIZE)), x.T)
    return jnp.tanh(total).sum(0)


def sorted_afterwards(x: Tensor, y: Tensor) -> Tensor:
    """What follows needs all of the sum at once."""
    matrix = kernel(x)
    step = lambda state, _: ((jnp.sin(matrix @ state[0]), state[1] + jnp.outer(state[0], y)), None)  # noqa: E731
    v, total = lax.scan(step, (y, jnp.zeros((SIZE, SIZE))), None, length=5)[0]
    return v, jnp.linalg.cholesky(total @ total.T + jnp.eye(SIZE)), jnp.sort(total.ravel())[:3]


def of_cheap_steps(x: Tensor, y: Tensor) -> Tensor:
    """The splitter runs such a loop for each tile of the sum, and would store nothing."""

    def step(state: Tensor, _: None) -> Tensor:
        v, total = state
        return (jnp.sin(v) + v.mean(), total + jnp.outer(v, y)), None

    v, total = lax.scan(step, (y, jnp.zeros((SIZE, SIZE))), None, length=5)[0]
    return v, jnp.tanh(total).sum(1)


def by_a_narrow_counter(x: Tensor, y: Tensor) -> Tensor:
    """The number of a step, counted from the first, is more than an i8 holds."""
    matrix = kernel(x) / SIZE

    def step(state: Tensor) -> Tensor:
        i, v, total = state
        return i + jnp.int8(1), jnp.sin(matrix @ v) + 1, total + jnp.outer(v, y)

    start = (jnp.int8(-100), y, jnp.zeros((SIZE, SIZE)))
    _, v, total = lax.while_loop(lambda state: state[0] < 100, step, start)
    return v, jnp.tanh(total).sum(1)


LEFT = [
    returned,
    read_by_a_step,
    of_much,
    of_dear_terms,
    until_it_is_large,
    nothing_else,
    of_cheap_steps,
    by_a_narrow_counter,
    sorted_afterwards,
]


def exported(function: Function) -> tuple[str, list[Any]]:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((SIZE, 8)).astype(np.float32) * 0.5, rng.standard_normal(SIZE).astype(np.float32)]
    return str(jax.export.export(jax.jit(function))(*arrays).mlir_module()), arrays


def rewrite(text: str, passes: tuple[str, ...]) -> tuple[str, list[Remark]]:
    with new_context() as context:
        module = ir.Module.parse(text, context)
        remarks = run_pipeline(module, passes, OPTIONS).remarks
        return serialise(module, "text").decode(), [each for each in remarks if each.code == "EX020"]


@pytest.mark.parametrize("function", TAKEN, ids=lambda each: each.__name__)
def test_sums_are_added_up_after_their_loop(function: Function) -> None:
    text, arrays = exported(function)
    rewritten, remarks = rewrite(text, ALONE)
    assert len(remarks) == SUMS.get(function, 1)
    for one, other in zip(interpret(text, arrays), interpret(rewritten, arrays), strict=True):
        assert one.tobytes() == other.tobytes(), "the same additions in the same order give the same bits"
    again, remarks = rewrite(rewritten, ALONE)
    assert not remarks and again == rewritten, "a second run changes it"


# Seventeen loops are too many for one region.
@pytest.mark.parametrize("function", [each for each in TAKEN if each is not many_sums], ids=lambda each: each.__name__)
def test_their_loops_are_cut(function: Function) -> None:
    text, arrays = exported(function)
    before = compile_program(text, count_all_memory=True)
    rewritten, _ = rewrite(text, DEFAULT_PASSES)
    after = compile_program(rewritten, count_all_memory=True)
    for one, other in zip(run_program(before, arrays), run_program(after, arrays), strict=True):
        comparison = compare(one, other)
        assert comparison.passed, comparison.problem
    left = after.executable.get_compiled_memory_stats().temp_size_in_bytes
    assert left < MATRIX, f"{left} bytes: a matrix of {MATRIX} is still there"


@pytest.mark.parametrize("function", LEFT, ids=lambda each: each.__name__)
def test_other_carries_stay(function: Function) -> None:
    text, arrays = exported(function)
    rewritten, remarks = rewrite(text, ALONE)
    assert not remarks
    plain, _ = rewrite(text, ("normalise",))
    assert rewritten == plain


EFFECT = """
func.func @main(%y: tensor<160xf32>, %m: tensor<160x160xf32>) -> (tensor<160xf32>, tensor<160xf32>) {{
  %n = stablehlo.constant dense<5> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<160x160xf32>
  %token = stablehlo.create_token : !stablehlo.token
  %r:4 = stablehlo.while(%i = %c0, %v = %y, %s = %zeros, %t = %token)
      : tensor<i32>, tensor<160xf32>, tensor<160x160xf32>, !stablehlo.token
  cond {{
    {}
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %next = stablehlo.dot_general %m, %v, contracting_dims = [1] x [0] : (tensor<160x160xf32>, tensor<160xf32>) -> tensor<160xf32>
    %term = stablehlo.dot_general %v, %y, contracting_dims = [] x [] : (tensor<160xf32>, tensor<160xf32>) -> tensor<160x160xf32>
    %added = stablehlo.add %s, %term : tensor<160x160xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %u = stablehlo.after_all %t : !stablehlo.token
    stablehlo.return %j, %next, %added, %u : tensor<i32>, tensor<160xf32>, tensor<160x160xf32>, !stablehlo.token
  }}
  %rows = stablehlo.reduce(%r#2 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<160x160xf32>, tensor<f32>) -> tensor<160xf32>
  return %r#1, %rows : tensor<160xf32>, tensor<160xf32>
}}
"""
TICK = "stablehlo.custom_call @tick() {has_side_effect = true} : () -> ()"


@pytest.mark.parametrize(("op", "taken"), [("", 1), (TICK, 0)], ids=["a token", "an effect"])
def test_conditions_with_effects_run_once(op: str, taken: int) -> None:
    rewritten, remarks = rewrite(EFFECT.format(op), ALONE)
    assert len(remarks) == taken
    assert rewritten.count("@tick") == EFFECT.format(op).count("@tick")
