"""Programs for eight devices that ask for what is at the edges: ties, NaN, labels at the first and last of a shard."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .program import Array, Program, line, spec


def best(x: Array) -> tuple[Any, ...]:
    """Ties in every row, within a shard and between shards, and NaN of both signs in most rows."""
    y = jnp.where(jnp.abs(x) > 3, jnp.copysign(jnp.nan, x), jnp.round(2 * x) / 2)
    zeros = jnp.where(jnp.abs(x) < 2, 0 * x, x)  # of both signs
    found = [lax.top_k(each, 5) for each in (y, -y, zeros, jnp.abs(jnp.round(y)))]
    return found, jnp.argmax(y, 1), jnp.argmin(y, 1), jnp.nanargmax(y, 1), jnp.argmax(zeros, 1)


def neighbours(points: Array, queries: Array) -> tuple[Any, ...]:
    """Nearest points on a lattice: most are equally far."""
    points, queries = jnp.round(points), jnp.round(queries)
    distances = ((queries[:, None] - points[None]) ** 2).sum(-1)
    return *lax.top_k(-distances, 7), jnp.argmin(distances, 1)


def labelled(w: Array, x: Array, given: Array) -> tuple[Any, ...]:
    """The cross entropy of each row, and its gradient, for the first and the last label of each shard and beyond."""
    words = w.shape[1]
    each = -(-words // 8)
    ends = [end for first in range(0, words, each) for end in (first, min(first + each, words) - 1)]
    labels = np.array([*ends, words, words + 1, 10**6, -1, -each, -words, -words - 1, -(10**6)], np.int32)
    labels = labels[: x.shape[0]] + given // 10**6  # given is smaller

    def losses(w: Array, mode: str) -> Array:
        found = jnp.take_along_axis(jax.nn.log_softmax(x @ w), labels[:, None], -1, mode=mode)
        return jnp.where(jnp.isnan(found), 0, found).sum(1)

    def gradient(mode: str) -> Array:
        return jax.grad(lambda w: (losses(w, mode) * jnp.arange(1, 25)).sum())(w)

    one_hot = (jax.nn.log_softmax(x @ w) * jax.nn.one_hot(labels, words)).sum(1)
    missing = jnp.isnan(jnp.take_along_axis(x @ w, labels[:, None], -1))
    found = [(losses(w, mode), gradient(mode)) for mode in ("fill", "clip")]
    return found, one_hot, missing, w.T.at[labels].get(mode="fill", fill_value=7), w.T.at[labels].add(1, mode="drop")


def step(weights: list[Array], x: Array) -> list[Array]:
    def loss(weights: list[Array]) -> Array:
        y = x
        for each in weights:
            y = jnp.tanh(y @ each)
        return (y**2).mean()

    return [w - 0.1 * d for w, d in zip(weights, jax.grad(loss)(weights), strict=True)]


def maxima(x: Array) -> Array:
    """Windows that overlap, also from shard to shard."""
    return (lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME") ** 2).sum()


def made() -> dict[str, Program]:
    """The programs by name. Called where there are eight devices."""
    on = partial(spec, line())
    rows, whole = NamedSharding(line(), P("d")), NamedSharding(line(), P())
    trained = ([on((64, 64))] * 3, on((4096, 64), "d"))
    return {
        "ties": Program(best, (on((256, 2048), None, "d"),), alone=True),
        "ties, rows": Program(lambda x: best(x.T), (on((2048, 256), "d"),), alone=True),
        "ties, more than a shard has": Program(
            lambda x: lax.top_k(jnp.where(jnp.abs(x) > 2, jnp.copysign(jnp.nan, x), jnp.round(x)), 30),
            (on((64, 128), None, "d"),),
            alone=True,
        ),
        "lattice, points": Program(neighbours, (on((4096, 2), "d"), on((256, 2))), alone=True),
        "lattice, queries": Program(neighbours, (on((1024, 2)), on((1024, 2), "d")), alone=True),
        "labels at borders": Program(
            labelled, (on((16, 8192), None, "d"), on((24, 16)), on((24,), dtype=jnp.int32)), alone=True
        ),
        "labels at borders, rows": Program(
            labelled, (on((16, 64), None, "d"), on((24, 16), "d"), on((24,), "d", dtype=jnp.int32)), alone=True
        ),
        "labels at uneven borders": Program(
            lambda w, x, given: labelled(
                lax.with_sharding_constraint(w[:, :61], NamedSharding(line(), P(None, "d"))), x, given
            ),
            (on((16, 64)), on((24, 16)), on((24,), dtype=jnp.int32)),
        ),
        "overlapping maxima": Program(jax.grad(maxima), (on((128, 32), "d"),), 0, alone=True),
        "donated": Program(step, trained, 2, {"donate_argnums": 0}),
        "donated, aliased": Program(
            step, trained, 2, {"donate_argnums": 0, "out_shardings": whole, "in_shardings": (whole, rows)}
        ),
    }
