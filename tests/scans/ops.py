"""What a step of a random loop computes of two values of its pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = Any


@dataclass(frozen=True, slots=True)
class Context:
    """What the ops of a step may read besides: weights, a vector, the step's number, a key and the step's flag."""

    weights: Array
    vector: Array
    number: Array
    key: Array
    flag: Array


def _layer(x: Array, y: Array, c: Context) -> Array:
    return jnp.tanh(x @ c.weights + y)


def _gate(x: Array, y: Array, c: Context) -> Array:
    return jax.nn.sigmoid(x + c.vector) * y


def _branch(x: Array, y: Array, c: Context) -> Array:
    return lax.cond(c.flag, lambda: jnp.sin(x) * y, lambda: x * 0.5 - jnp.cos(y @ c.weights))


def _branch_with_sum(x: Array, y: Array, c: Context) -> Array:
    both = lax.cond(c.flag, lambda: (jnp.exp(-x * x), (x * y).sum(0)), lambda: (x * 0.5, y.mean(0)))
    return both[0] + 0.1 * jnp.tanh(both[1])


def _inner_loop(x: Array, y: Array, c: Context) -> Array:
    return lax.scan(lambda h, t: (jnp.tanh(h @ c.weights) + t * y, None), x, jnp.linspace(0.1, 0.3, 4))[0]


def _inner_stack(x: Array, y: Array, c: Context) -> Array:
    def step(h: Array, t: Array) -> Any:
        h = jnp.sin(h + t * y)
        return h, jnp.exp(-h * h)

    last, stack = lax.scan(step, x, jnp.linspace(0.1, 0.5, 6), reverse=True)
    return last + stack[1] * stack[-1] + stack.mean(0)


def _counted_loop(x: Array, y: Array, c: Context) -> Array:
    return lax.fori_loop(0, 3, lambda i, h: jnp.cos(h) * 0.5 + y * (i + 1), x)


def _dropout(x: Array, y: Array, c: Context) -> Array:
    return jnp.where(jax.random.bernoulli(jax.random.fold_in(c.key, c.number), 0.7, x.shape), x / 0.7, 0) + 0.1 * y


def _noise(x: Array, y: Array, c: Context) -> Array:
    return x + 0.1 * y * jax.random.normal(jax.random.fold_in(c.key, c.number), x.shape)


def _attention(x: Array, y: Array, c: Context) -> Array:
    return jax.nn.softmax(x @ y.T / 4, -1) @ x


def _written(x: Array, y: Array, c: Context) -> Array:
    return x.at[c.number % x.shape[0]].set(jnp.tanh(y.sum(0)))


def _added(x: Array, y: Array, c: Context) -> Array:
    return x.at[jnp.arange(3) * 2 % x.shape[0]].add(0.1 * y[:3])


def _picked(x: Array, y: Array, c: Context) -> Array:
    return 0.5 * x + y[(jnp.arange(x.shape[0]) + c.number) % x.shape[0]]


def _checkpointed(x: Array, y: Array, c: Context) -> Array:
    return jax.checkpoint(lambda x, y: jnp.sin(x @ c.weights) * jnp.exp(-y * y))(x, y)


OPS: tuple[Callable[[Array, Array, Context], Array], ...] = (
    _layer,
    _gate,
    _branch,
    _branch_with_sum,
    _inner_loop,
    _inner_stack,
    _counted_loop,
    _dropout,
    _noise,
    _attention,
    _written,
    _added,
    _picked,
    _checkpointed,
    lambda x, y, c: jnp.sin(x) * y,
    lambda x, y, c: jnp.clip(jnp.maximum(x, y), -1, 1),
    lambda x, y, c: jnp.logaddexp(x, y) - 0.5,
    lambda x, y, c: x - x.mean(0) + jnp.cumsum(y, 0) * 0.1,
    lambda x, y, c: jax.nn.softmax(x) * y.shape[1] + y,
    lambda x, y, c: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 0.1) + 0.1 * y,
    lambda x, y, c: jnp.roll(x, 1, 0) - y[::-1],
    lambda x, y, c: x / (1 + jnp.abs(x).max(1, keepdims=True)) + 0.2 * y,
    lambda x, y, c: jnp.sort(x, 1) * 0.5 + y,
    lambda x, y, c: lax.optimization_barrier(jnp.cos(x)) * y,
    lambda x, y, c: (x.astype(jnp.bfloat16) * 2).astype(x.dtype) * 0.4 + y,
)
