"""Whole functions: what is taken, returned, donated, shared, checkpointed and differentiated by a rule of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.programs.model import Program, both, gradient

Array = Any
# Whether jax writes the gradient of a branch as it did up to 0.11.
OLD_JAX = jax.__version_info__ < (0, 12)


def big(x: Array, y: Array) -> Array:
    return jnp.exp(0.1 * (x @ y.T))


def returned_and_used(x: Array, y: Array) -> Any:
    k = big(x, y)
    return k, jnp.sin(k).sum(1)


def returned_twice(x: Array, y: Array) -> Any:
    k = big(x, y)
    return k, k.T, (k @ y)


def argument_big(a: Array, v: Array) -> Any:
    return jnp.tanh(a * 2) @ v, jnp.cos(a).sum()


def argument_to_result(a: Array, v: Array) -> Any:
    return jax.nn.softmax(jnp.tanh(a * v), axis=1)


def softmax_both(a: Array) -> Any:
    return jax.nn.softmax(a, axis=0), jax.nn.softmax(a, axis=1)


def donated_update(a: Array, x: Array, y: Array) -> Array:
    return a + 0.1 * big(x, y) * jnp.tanh(big(y, x).T)


def donated_step(w: Array, x: Array, y: Array) -> Any:
    def loss(w: Array) -> Array:
        return ((jnp.tanh(x @ w) @ jnp.ones((w.shape[1],)) - y) ** 2).mean()

    value, change = jax.value_and_grad(loss)(w)
    return w - 0.1 * change, value


def independent(x: Array, y: Array, z: Array) -> Any:
    return big(x, y).sum(1), jnp.cos(big(y, z)).sum(0)


def interleaved(x: Array, y: Array, z: Array) -> Any:
    a = big(x, y)
    b = big(y, z)
    c = jnp.sin(a)
    d = jnp.sin(b)
    return c.sum(1), d.sum(0), (c**2).max(1), (d**2).max(1)


def crossed(x: Array, y: Array, z: Array) -> Any:
    """The second matrix needs a sum of the first, and the first is read again after the second."""
    a = big(x, y)
    scale = a.sum(0)
    b = big(y, z) * scale[:, None]
    return (a * b.sum(1)[None]).sum(1), b.max(0)


def product_of_three(x: Array, y: Array, z: Array) -> Array:
    return ((big(x, y) @ big(y, z)) ** 2).sum(1)


def matrix_power(x: Array) -> Array:
    a = big(x, x) / 300 + jnp.eye(x.shape[0])
    return (a @ a @ a).sum(1)


@jax.custom_jvp
def clipped(x: Array) -> Array:
    return jnp.where(x > 1, 1.0, x)


@clipped.defjvp
def clipped_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return clipped(x), t * jnp.where(x > 1, 0.1, 1.0)


@jax.custom_vjp
def straight_through(x: Array) -> Array:
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), x), lambda x, g: (g * jnp.cos(x),))


def own_rules(x: Array, y: Array) -> Array:
    return (clipped(big(x, y)) * straight_through(x @ y.T)).sum(1)


def checkpointed(x: Array, y: Array) -> Array:
    return jax.checkpoint(lambda x: jnp.sin(big(x, y)).sum(1))(x)


def checkpointed_chain(x: Array, y: Array) -> Array:
    def step(x: Array) -> Array:
        return jax.nn.softmax(x @ y.T) @ y

    for _ in range(3):
        x = jax.checkpoint(step)(x)
    return x


def hessian_vector(x: Array, y: Array) -> Array:
    def loss(x: Array) -> Array:
        return jnp.log(big(x, y).sum(1)).sum()

    return jax.jvp(jax.grad(loss), (x,), (jnp.sin(x),))[1]


def jacobian(x: Array, v: Array) -> Array:
    return jax.jacrev(lambda x: jnp.tanh(x * v).cumsum())(x).sum(1)


def per_example(x: Array, w: Array, u: Array) -> Array:
    def loss(x: Array, w: Array, u: Array) -> Array:
        return (jnp.tanh(jnp.tanh(x @ w) @ u) ** 2).sum()

    grads = jax.vmap(jax.grad(loss, (1, 2)), (0, None, None))(x, w, u)
    norms = jnp.sqrt((grads[0] ** 2).sum((1, 2)) + (grads[1] ** 2).sum(1))
    clip = jnp.minimum(1.0, 1.0 / norms)
    return [jnp.einsum("b...,b->...", g, clip) for g in grads]


def mapped(x: Array, y: Array) -> Array:
    return lax.map(lambda row: jnp.exp(-((row[None, None] - y[:, None]) * y[None]).sum(-1)).sum(1).max(), x)


def nested_loops(x: Array, y: Array) -> Array:
    def outer(i: Any, total: Array) -> Array:
        def inner(j: Any, t: Array) -> Array:
            return t + jnp.tanh(big(x * (i + 1.0), y)).sum(1) * 0.01 * j

        return lax.fori_loop(0, 2, inner, total)

    return lax.fori_loop(0, 3, outer, jnp.zeros(x.shape[0]))


def loop_of_none(x: Array, y: Array, count: Array) -> Array:
    k = big(x, y)
    return lax.fori_loop(0, jnp.minimum(count, 0), lambda i, t: t + (k * t[:, None]).sum(1), jnp.ones(x.shape[0]))


def carried_matrix(x: Array) -> Array:
    return lax.fori_loop(0, 3, lambda i, k: jnp.tanh(k @ k / 300), big(x, x)).sum(1)


def carried_elementwise(x: Array) -> Array:
    return lax.fori_loop(0, 3, lambda i, k: jnp.tanh(k) * 1.1, big(x, x)).sum(1)


def built_by_steps(x: Array) -> Array:
    rows = lax.scan(lambda c, row: (c + 1, jnp.tanh(row * c)), jnp.float32(0), big(x, x))[1]
    return rows.sum(0)


def branch_inside_loop(x: Array, v: Array) -> Array:
    def step(i: Any, v: Array) -> Array:
        return lax.cond(i % 2 == 0, lambda: big(x, x) @ v / 300, lambda: jnp.cos(x @ x.T) @ v / 300)

    return lax.fori_loop(0, 4, step, v)


def conditional_norm(x: Array, y: Array) -> Array:
    k = big(x, y)
    top = k.max()
    return lax.cond(top > 10, lambda k: (k / top).sum(1), lambda k: k.sum(1), k)


def associative(x: Array, y: Array) -> Array:
    return lax.associative_scan(jnp.add, big(x, y), axis=1)[:, -1]


XY = "401x5xf32 307x5xf32"
XYZ = "401x5xf32 307x5xf32 257x5xf32"
PROGRAMS: list[Program] = [
    *both("returned_and_used", returned_and_used, XY),
    Program("returned_twice", returned_twice, XY, 1.0, "it is a result of this block"),
    *both("argument_big", argument_big, "400x300xf32 300xf32"),
    Program("argument_to_result", argument_to_result, "400x300xf32 300xf32", 1.0),
    Program("softmax_both", softmax_both, "400x300xf32", 1.1),
    Program("donated_update", donated_update, "401x307xf32 401x5xf32 307x5xf32", 0.1, donated=(0,)),
    Program("donated_step", donated_step, "100x300xf32 400x100xf32 400xf32", 0.3, donated=(0,)),
    *both("independent", independent, XYZ),
    Program("interleaved", interleaved, XYZ),
    *both("crossed", crossed, XYZ),
    *both("product_of_three", product_of_three, XYZ, 0.6),
    Program("matrix_power", matrix_power, "300x5xf32", 0.4),
    *both("own_rules", own_rules, XY),
    *both("checkpointed", checkpointed, XY),
    *both("checkpointed_chain", checkpointed_chain, XY),
    Program("hessian_vector", hessian_vector, XY),
    Program("jacobian", jacobian, "300xf32 300xf32"),
    Program("per_example", per_example, "256x16xf32 16x32xf32 32xf32"),
    Program("mapped", mapped, "8x4xf32 300x4xf32"),
    Program("nested_loops", nested_loops, XY),
    Program("loop_of_none", loop_of_none, XY + " i32"),
    Program("carried_matrix", carried_matrix, "300x5xf32", 1.1, "carries it from one step to the next"),
    Program("carried_elementwise", carried_elementwise, "300x5xf32"),
    Program("built_by_steps", built_by_steps, "300x5xf32", 0.6),
    Program("branch_inside_loop", branch_inside_loop, "300x5xf32 300xf32"),
    # The branches read the matrix complete: one of two is left, and of a gradient three of four.
    Program("conditional_norm", conditional_norm, XY, 0.5),
    # jax 0.12 leaves the matrix outside of the branches, so that both of them ask where the maximum is.
    Program("conditional_norm_gradient", gradient(conditional_norm), XY, 0.75 if OLD_JAX else 1.0),
    Program("associative", associative, XY),
]
