"""Loops of the program that are cut from outside: scans over layers and time, solvers, random numbers; refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.programs.model import Program, both, gradient

Array = Any


def layers(x: Array, weights: Array) -> Array:
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0].sum(1)


def residual_layers(x: Array, up: Array, down: Array) -> Array:
    def layer(h: Array, ws: Any) -> Any:
        normed = (h - h.mean(1, keepdims=True)) * lax.rsqrt(h.var(1, keepdims=True) + 1e-5)
        return h + jax.nn.gelu(normed @ ws[0]) @ ws[1], None

    return lax.scan(layer, x, (up, down))[0].sum(1)


def checkpointed_layers(x: Array, weights: Array) -> Array:
    return lax.scan(jax.checkpoint(lambda h, w: (jnp.sin(jnp.tanh(h @ w)), None)), x, weights)[0].sum(1)


def narrow_layers(x: Array, weights: Array) -> Array:
    return layers(x, 0.2 * weights)


def lstm(steps: Array, inner: Array, outer: Array) -> Array:
    def step(carry: Any, x: Array) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ inner + h @ outer, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((steps.shape[1], outer.shape[0]))
    return lax.scan(step, (zeros, zeros), steps)[1].sum((0, 2))


def reversed_scan(steps: Array, w: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        h = jnp.sin(h @ w / 4 + x)
        return h, h * x

    return lax.scan(step, jnp.zeros(steps.shape[1:]), steps, reverse=True)[1].sum((0, 2))


def runge_kutta(y: Array, up: Array, down: Array) -> Array:
    def slope(y: Array) -> Array:
        return jnp.tanh(y @ up) @ down

    def step(y: Array, _: None) -> Any:
        a = slope(y)
        b = slope(y + 0.05 * a)
        c = slope(y + 0.05 * b)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + slope(y + 0.1 * c)), None

    return lax.scan(step, y, None, length=6)[0].sum(1)


def conjugate_gradients(x: Array, b: Array) -> Array:
    matrix = jnp.einsum("bik,bjk->bij", x, x) + 4 * jnp.eye(x.shape[1])

    def step(_: Any, state: Any) -> Any:
        y, r, p, rs = state
        ap = jnp.einsum("bij,bj->bi", matrix, p)
        alpha = (rs / (p * ap).sum(1))[:, None]
        r = r - alpha * ap
        after = (r * r).sum(1)
        return y + alpha * p, r, r + (after / rs)[:, None] * p, after

    return lax.fori_loop(0, 4, step, (jnp.zeros_like(b), b, b, (b * b).sum(1)))[0]


def until_converged(x: Array) -> Array:
    return lax.while_loop(lambda y: jnp.abs(y).max() > 0.5, lambda y: jnp.sin(y) * 0.9, x).sum(1)


def until_small(x: Array) -> Array:
    def step(state: Any) -> Any:
        y = jnp.sin(state[0]) * 0.9
        return y, jnp.abs(y).max()

    return lax.while_loop(lambda state: state[1] > 0.5, step, (x, jnp.float32(1)))[0].sum(1)


def every_one_until_converged(x: Array) -> Array:
    def one(row: Array) -> Array:
        return lax.while_loop(lambda y: (y**2).sum() > 1, lambda y: jnp.sin(y) * 0.5, row)

    return jax.vmap(one)(x).sum(1)


def sinkhorn(x: Array, y: Array) -> Array:
    kernel = jnp.exp(-0.1 * jnp.einsum("pik,pjk->pij", x, y))

    def step(_: Any, scales: Any) -> Any:
        u, v = scales
        u = 1 / jnp.einsum("pij,pj->pi", kernel, v)
        return u, 1 / jnp.einsum("pij,pi->pj", kernel, u)

    ones = jnp.ones(x.shape[:2])
    u, v = lax.fori_loop(0, 5, step, (ones, jnp.ones(y.shape[:2])))
    return jnp.einsum("pi,pij,pj->p", u, kernel, v)


def random_numbers(scale: Array) -> Array:
    return (scale * jax.random.normal(jax.random.key(1), (400, 300)) ** 2).mean()


def dropout(x: Array, weights: Array) -> Array:
    def layer(carry: Any, w: Array) -> Any:
        h, key = carry
        key, own = jax.random.split(key)
        h = jnp.where(jax.random.bernoulli(own, 0.9, h.shape), jnp.tanh(h @ w), 0)
        return (h, key), None

    return lax.scan(layer, (x, jax.random.key(0)), weights)[0][0].sum(1)


def scan_of_scans(x: Array, weights: Array) -> Array:
    def outer(h: Array, w: Array) -> Any:
        inner, _ = lax.scan(lambda g, _: (jnp.tanh(g @ w), None), h, None, length=2)
        return inner + h, None

    return lax.scan(outer, x, weights)[0].sum(1)


def unrolled_by_two(x: Array, weights: Array) -> Array:
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights, unroll=2)[0].sum(1)


def branch_per_layer(x: Array, weights: Array) -> Array:
    def layer(i: Any, h: Array) -> Array:
        return lax.cond(i % 2 == 0, lambda h: jnp.tanh(h @ weights[0]), lambda h: jnp.sin(h @ weights[1]) + h, h)

    return lax.fori_loop(0, 4, layer, x).sum(1)


def sums_beside(x: Array, weights: Array) -> Any:
    """A sum over the batch is carried, and one of every step is stacked."""

    def step(carry: Any, w: Array) -> Any:
        h, total = carry
        h = jnp.tanh(h @ w)
        return (h, total + h.sum(0)), 0.5 * h.mean(0)

    (_, total), stack = lax.scan(step, (x, weights[0, 0]), weights)
    return total, stack


def normalised_over_batch(x: Array, weights: Array) -> Array:
    """Every step needs the sum over all of the batch, and a product with a matrix all columns."""

    def step(h: Array, w: Array) -> Any:
        h = jnp.tanh(h @ w)
        return h / jnp.sqrt((h**2).mean(0) + 0.1), None

    return lax.scan(step, x, weights)[0].sum(1)


def turned_round(x: Array) -> Array:
    return lax.fori_loop(0, 3, lambda i, k: jnp.tanh(k.T * 1.1) + i, jnp.exp(0.1 * x @ x.T)).sum(1)


def kept_maximum(steps: Array) -> Array:
    def step(most: Array, x: Array) -> Any:
        most = jnp.maximum(0.9 * most, jnp.sin(x))
        return most, most

    return jnp.exp(lax.scan(step, steps[0], steps)[1]).sum(0)


def captured_rows(x: Array, y: Array) -> Array:
    """The loop carries a vector, and reads the big matrix by rows in the sum and by columns in the product."""
    k = jnp.tanh(x @ y.T)
    return lax.fori_loop(0, 3, lambda i, v: jnp.sin(k.T @ (k @ v) / 400 / 300), jnp.ones(y.shape[0]))


X, W = "512x64xf32", "3x64x64xf32"
PROGRAMS: list[Program] = [
    *both("layers", layers, f"{X} {W}", 0.35),
    *both("residual_layers", residual_layers, "512x32xf32 3x32x64xf32 3x64x32xf32", 0.3),
    *both("checkpointed_layers", checkpointed_layers, f"{X} {W}", 0.35),
    *both("narrow_layers", narrow_layers, "512x64xbf16 3x64x64xbf16", 0.65),
    *both("lstm", lstm, "12x96x24xf32 24x96xf32 24x96xf32", 0.3),
    *both("reversed_scan", reversed_scan, "12x256x16xf32 16x16xf32", 0.3),
    *both("runge_kutta", runge_kutta, "512x32xf32 32x64xf32 64x32xf32", 0.3),
    *both("solver_of_many", conjugate_gradients, "64x24x24xf32 64x24xf32", 0.5),
    *both("sinkhorn", sinkhorn, "32x40x4xf32 32x40x4xf32", 0.5),
    Program("random_numbers", random_numbers, "f32", 0.02),
    *both("dropout_in_scan", dropout, f"{X} {W}", 0.6),
    *both("scan_of_scans", scan_of_scans, f"{X} {W}", 0.35),
    *both("unrolled_by_two", unrolled_by_two, f"{X} 5x64x64xf32", 0.35),
    *both("branch_per_layer", branch_per_layer, f"{X} 2x64x64xf32", 0.5),
    *both("sums_beside", sums_beside, f"{X} {W}", 0.5),
    *both("kept_maximum", kept_maximum, "12x512x16xf32", 0.3),
    Program("until_converged", until_converged, X, 1.0, "its condition depends on a split value"),
    Program("until_small", until_small, X, 1.0, "its condition depends on a split value"),
    Program("every_one_until_converged", every_one_until_converged, X, 1.0, "its condition depends on a split value"),
    Program("normalised_over_batch", normalised_over_batch, f"{X} {W}", 1.0, "needs the complete sum"),
    Program("turned_round", turned_round, "300x5xf32", 1.0, "comes back split differently"),
    Program("captured_rows", captured_rows, "401x5xf32 307x5xf32", 0.5),
    Program("runge_kutta_gradient_twice", gradient(gradient(runge_kutta)), "256x16xf32 16x32xf32 32x16xf32", 0.5),
]
