"""Gradients through solvers of a fixed number of steps, whose matrix is computed from few numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Field, f32

FIELD = Field()

POINTS, STEPS = 5000, 12


def gaussian(x: Array, scale: Array) -> Array:
    """The Gaussian kernel matrix of points."""
    return jnp.exp(-0.5 * (((x[:, None] - x[None]) / scale) ** 2).sum(-1))


@FIELD.add(f32(POINTS, 4), f32(POINTS), f32(4))
def process_by_conjugate_gradients(x: Array, y: Array, scale: Array) -> Any:
    """The quadratic term of a Gaussian process' likelihood by conjugate gradients, with its gradient."""

    def loss(scale: Array) -> Array:
        matrix = gaussian(x, scale) + 0.1 * jnp.eye(POINTS)

        def step(state: Any, _: None) -> Any:
            s, r, p, rr = state
            q = matrix @ p
            a = rr / (p @ q)
            s, r = s + a * p, r - a * q
            return (s, r, r + (r @ r) / rr * p, r @ r), None

        (s, *_), _ = lax.scan(step, (jnp.zeros_like(y), y, y, y @ y), None, length=STEPS)
        return s @ y

    return jax.value_and_grad(loss)(scale)


@FIELD.add(f32(POINTS, 4), f32(POINTS), f32(4))
def determinant_by_lanczos(x: Array, y: Array, scale: Array) -> Any:
    """The coefficients of Lanczos' method on a kernel matrix, and the gradient of a function of them."""

    def loss(scale: Array) -> Array:
        matrix = gaussian(x, scale) + 0.1 * jnp.eye(POINTS)

        def step(state: Any, _: None) -> Any:
            before, q, b = state
            v = matrix @ q - b * before
            a = v @ q
            v = v - a * q
            b = jnp.linalg.norm(v) + 1e-6
            return (q, v / b, b), (a, b)

        start = (jnp.zeros_like(y), y / jnp.linalg.norm(y), jnp.float32(0))
        _, (a, b) = lax.scan(step, start, None, length=STEPS)
        return jnp.log(jnp.abs(a)).sum() + b.sum()

    return jax.value_and_grad(loss)(scale)


@FIELD.add(f32(POINTS, 8))
def largest_eigenvalue(x: Array) -> Any:
    """The largest eigenvalue of tanh(x x') by power iteration, with its gradient."""

    def loss(x: Array) -> Array:
        matrix = jnp.tanh(x @ x.T)

        def step(v: Array, _: None) -> Any:
            v = matrix @ v
            return v / jnp.linalg.norm(v), None

        v, _ = lax.scan(step, jnp.ones(POINTS), None, length=STEPS)
        return v @ (matrix @ v)

    return jax.value_and_grad(loss)(x)


@FIELD.add(f32(POINTS, 8), f32(8))
def learned_page_rank(x: Array, w: Array) -> Any:
    """PageRank on a graph whose weights are a softmax, with the gradient for its parameters."""

    def loss(w: Array) -> Array:
        matrix = jax.nn.softmax((x * w) @ x.T, axis=0)
        step = lambda rank, _: (0.85 * matrix @ rank + 0.15 / POINTS, None)  # noqa: E731
        rank, _ = lax.scan(step, jnp.ones(POINTS) / POINTS, None, length=STEPS)
        return jnp.log(rank).sum()

    return jax.value_and_grad(loss)(w)


@FIELD.add(f32(4000, 6), f32(4000, 5), f32(6))
def label_propagation(x: Array, labels: Array, w: Array) -> Any:
    """Labels that spread over a normalised similarity graph, with the gradient for its scales."""

    def loss(w: Array) -> Array:
        similar = jnp.exp(-(((x * w)[:, None] - (x * w)[None]) ** 2).sum(-1))
        similar = similar / similar.sum(1, keepdims=True)
        spread, _ = lax.scan(lambda y, _: (0.9 * similar @ y + 0.1 * labels, None), labels, None, length=8)
        return -jnp.log(jnp.abs(spread) + 1e-3).mean()

    return jax.value_and_grad(loss)(w)


@FIELD.add(f32(4000, 3), f32(3000, 3), f32(3000), f32(3))
def landweber_inverse_problem(x: Array, z: Array, y: Array, w: Array) -> Any:
    """Landweber's iteration with a rectangular kernel, with the gradient for its length scales."""

    def loss(w: Array) -> Array:
        kernel = jnp.exp(-jnp.abs((x * w)[:, None] - (z * w)[None]).sum(-1)) / 3000
        data = kernel @ y

        def step(u: Array, _: None) -> Any:
            return u + 0.5 * kernel.T @ (data - kernel @ u), None

        u, _ = lax.scan(step, jnp.zeros(3000), None, length=10)
        return ((u - y) ** 2).mean()

    return jax.value_and_grad(loss)(w)


@FIELD.add(f32(3000, 16), f32(3000, 16), f32(16, 16))
def policy_evaluation(states: Array, actions: Array, w: Array) -> Any:
    """Values of a policy with learned transitions, by iteration, with the gradient for these."""

    def loss(w: Array) -> Array:
        moves = jax.nn.softmax((states @ w) @ actions.T, axis=1)
        rewards = jnp.tanh(states[:, 0])
        values, _ = lax.scan(lambda v, _: (rewards + 0.95 * moves @ v, None), jnp.zeros(3000), None, length=20)
        return values.mean()

    return jax.grad(loss)(w)


@FIELD.add(f32(2500, 5), f32(2500, 21), f32(5), f32(21, 21))
def mean_field_of_a_dense_field(features: Array, unary: Array, w: Array, compatible: Array) -> Any:
    """A fully connected conditional random field, mean-field updates with a learned compatibility, and gradients."""

    def loss(w: Array, compatible: Array) -> Array:
        kernel = gaussian(features, w) - jnp.eye(2500)

        def step(q: Array, _: None) -> Any:
            return jax.nn.softmax(unary - (kernel @ q) @ compatible, axis=1), None

        q, _ = lax.scan(step, jax.nn.softmax(unary, axis=1), None, length=6)
        return -jnp.log(q[:, 0] + 1e-6).mean()

    return jax.grad(loss, (0, 1))(w, compatible)


@FIELD.add(f32(3000, 10), f32(3000, 10), f32(10))
def hopfield_retrieval(patterns: Array, queries: Array, w: Array) -> Any:
    """Modern Hopfield updates of queries over stored patterns with learned scales: the state is multiplied anew."""

    def loss(w: Array) -> Array:
        keys = patterns * w

        def step(state: Array, _: None) -> Any:
            return jax.nn.softmax(4 * state @ keys.T, axis=1) @ keys, None

        state, _ = lax.scan(step, queries, None, length=4)
        return ((state - queries) ** 2).mean()

    return jax.grad(loss)(w)


@FIELD.add(f32(4000, 3), f32(4000), f32(3), f32(4))
def chebyshev_graph_filter(x: Array, signal: Array, w: Array, weights: Array) -> Any:
    """A polynomial filter on a similarity graph by Chebyshev's recurrence, with gradients for graph and filter."""

    def loss(w: Array, weights: Array) -> Array:
        similar = gaussian(x, w)
        inverse = lax.rsqrt(similar.sum(1))

        def shift(v: Array) -> Array:
            return -inverse * (similar @ (inverse * v))

        def step(state: Any, index: Array) -> Any:
            before, now, total = state
            after = 2 * shift(now) - before
            return (now, after, total + weights[index] * after), None

        start = (signal, shift(signal), jnp.zeros_like(signal))
        (_, _, total), _ = lax.scan(step, start, jnp.arange(4))
        return (total**2).mean()

    return jax.grad(loss, (0, 1))(w, weights)


@FIELD.add(f32(2000, 6), f32(2000, 4), f32(6))
def subspace_iteration(x: Array, start: Array, w: Array) -> Any:
    """The leading subspace of a kernel by orthogonal iteration, with the gradient of what it explains."""

    def loss(w: Array) -> Array:
        kernel = gaussian(x, jnp.exp(w))

        def step(v: Array, _: None) -> Any:
            v = kernel @ v
            gram = v.T @ v + 1e-4 * jnp.eye(4)
            return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(gram), v.T, lower=True).T, None

        v, _ = lax.scan(step, start, None, length=8)
        return jnp.trace(v.T @ (kernel @ v))

    return jax.value_and_grad(loss)(w)
