"""Every kind of reduction, sorts and running sums, and linear algebra in batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.programs.model import Program, both, gradient

Array = Any
XY = "401x5xf32 307x5xf32"


def big(x: Array, y: Array) -> Array:
    return jnp.exp(0.1 * (x @ y.T))


def all_reductions(x: Array, y: Array) -> Any:
    k = big(x, y) - 1
    return k.sum(0), k.min(0), k.max(0), (k > 0).all(0), (k > 1).any(0), (k > 0).sum(0), jnp.prod(k * 0.5 + 1, 0)


def all_reductions_rows(x: Array, y: Array) -> Any:
    k = big(x, y) - 1
    return k.sum(1), k.min(1), k.max(1), (k > 0).all(1), (k > 1).any(1), jnp.argmax(k, 1), jnp.std(k, 1)


def to_scalars(x: Array, y: Array) -> Any:
    k = big(x, y)
    return k.sum(), k.min(), k.max(), k.argmin(), jnp.linalg.norm(k), (k > 1).mean()


def odd_starts(x: Array, y: Array) -> Any:
    """Starts that are no identity, of monoids that do not mind to count them twice: XLA:CPU does."""
    k = big(x, y)
    return (
        lax.reduce(k, jnp.float32(1.05), lax.min, (0,)),
        lax.reduce(k, jnp.float32(1.05), lax.max, (0,)),
        lax.reduce(k > 1, jnp.bool_(False), lax.bitwise_and, (0,)),
        lax.reduce(k > 1, jnp.bool_(True), lax.bitwise_or, (0,)),
        lax.reduce((k * 10).astype(jnp.int32), jnp.int32(7), lax.bitwise_or, (0,)),
        lax.reduce((k, -k), (jnp.float32(0), jnp.float32(-1)), lambda a, b: (a[0] + b[0], lax.min(a[1], b[1])), (0,)),
    )


def column_softmax(x: Array, y: Array) -> Array:
    return jax.nn.softmax(big(x, y), axis=0) @ y


def double_softmax(x: Array, y: Array) -> Array:
    k = big(x, y)
    return (jax.nn.softmax(k, axis=0) * jax.nn.softmax(k, axis=1)).sum(1)


def clipped_softmax(x: Array, y: Array) -> Array:
    return jnp.clip(jax.nn.softmax(big(x, y), axis=0), 0.0023, 0.0027).sum(1)


def nearest_by_difference(x: Array, y: Array) -> Array:
    return ((x[:, None] - y[None]) ** 2).sum(-1).min(1)


def both_maxima(x: Array, y: Array) -> Any:
    k = big(x, y)
    k = k / k.sum(0)
    return k.max(0), k.max(1), k.min()


def cumulative_rows(x: Array, y: Array) -> Array:
    return jnp.cumsum(big(x, y), axis=1).max(1)


def cumulative_columns(x: Array, y: Array) -> Array:
    return jnp.cumsum(big(x, y), axis=0)[-1]


def cumulative_max(x: Array, y: Array) -> Array:
    return lax.cummax(big(x, y), axis=1).sum(1)


def running(operator: Any, init: float, x: Array, y: Array) -> Array:
    """Cumulative along the columns, as TPU and TensorFlow exports write it."""
    k = big(x, y)
    scanned = lax.reduce_window(k, init, operator, (1, k.shape[1]), (1, 1), [(0, 0), (k.shape[1] - 1, 0)])
    return (scanned * k).sum(0)


def running_sum(x: Array, y: Array) -> Array:
    return running(lax.add, 0.0, x, y)


def running_maximum(x: Array, y: Array) -> Array:
    return running(lax.max, -jnp.inf, x, y)


def moving_average(x: Array) -> Array:
    windows = lax.reduce_window(x[:, None] * jnp.arange(1.0, 9.0), 0.0, lax.add, (31, 1), (1, 1), [(15, 15), (0, 0)])
    return jnp.sort(jnp.tanh(windows), axis=1)[:, ::3].sum(1)


def every_third(x: Array, y: Array) -> Array:
    return jnp.sort(jnp.tanh(x @ y.T)[:, 1::3], axis=0)[::100]


def sorted_rows(x: Array, y: Array) -> Array:
    return jnp.sort(big(x, y), axis=1)[:, ::50].sum(1)


def sorted_columns(x: Array, y: Array) -> Array:
    return jnp.sort(big(x, y), axis=0)[5]


def medians(x: Array, y: Array) -> Array:
    return jnp.median(big(x, y), axis=1)


def top_rows(x: Array, y: Array) -> Any:
    return lax.top_k(big(x, y), 5)


def unique_counts(x: Array, y: Array) -> Array:
    return jnp.bincount((big(x, y) * 4).astype(jnp.int32).reshape(-1), length=16)


def searched(x: Array, y: Array) -> Array:
    return jnp.searchsorted(jnp.sort(y[:, 0]), (x @ y.T)).sum(1)


def random_features(x: Array, y: Array) -> Array:
    noise = jax.random.normal(jax.random.key(0), (x.shape[0], y.shape[0]))
    return (noise * (x @ y.T)).sum(1)


def dropout(x: Array, y: Array) -> Array:
    keep = jax.random.bernoulli(jax.random.key(1), 0.9, (x.shape[0], y.shape[0]))
    return jnp.where(keep, x @ y.T, 0) @ y


def solves(a: Array, b: Array) -> Array:
    a = a @ a.transpose(0, 2, 1) + 20 * jnp.eye(a.shape[-1])
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(a), b, lower=True).sum((1, 2))


def general_solves(a: Array, b: Array) -> Array:
    return jax.vmap(jnp.linalg.solve)(a + 20 * jnp.eye(a.shape[-1]), b).sum((1, 2))


def determinants(a: Array) -> Array:
    return jnp.linalg.slogdet(a @ a.transpose(0, 2, 1) + jnp.eye(a.shape[-1]))[1]


def inverses(a: Array) -> Array:
    return jnp.linalg.inv(a + 20 * jnp.eye(a.shape[-1])).sum((1, 2))


def eigenvalues(a: Array) -> Array:
    return jnp.linalg.eigvalsh(a + a.transpose(0, 2, 1))[:, 0]


def singular_values(a: Array) -> Array:
    return jnp.linalg.svd(a, compute_uv=False)[:, 0]


def wide_solve(a: Array, x: Array, y: Array) -> Array:
    lower = jnp.linalg.cholesky(a @ a.T + 20 * jnp.eye(a.shape[0]))
    return (jax.scipy.linalg.solve_triangular(lower, big(x, y), lower=True) ** 2).sum(0)


def spectra(x: Array, y: Array) -> Array:
    return jnp.abs(jnp.fft.rfft(big(x, y), axis=1)).max(1)


PROGRAMS: list[Program] = [
    Program("all_reductions", all_reductions, XY),
    Program("all_reductions_rows", all_reductions_rows, XY),
    Program("to_scalars", to_scalars, XY),
    Program("odd_starts", odd_starts, XY),
    *both("column_softmax", column_softmax, XY),
    Program("double_softmax", double_softmax, XY),
    *both("clipped_softmax", clipped_softmax, XY),
    *both("nearest_by_difference", nearest_by_difference, XY),
    Program("both_maxima", both_maxima, XY),
    Program("both_maxima_gradient", gradient(both_maxima), XY, 1.3, "a comparison for equality"),
    *both("cumulative_rows", cumulative_rows, XY),
    Program("running_sum", running_sum, XY),
    Program("running_maximum", running_maximum, XY),
    Program("moving_average", moving_average, "4000xf32", 0.7),
    Program("every_third", every_third, XY, 0.8, "it is needed complete, and the loop writes it"),
    Program("cumulative_columns", cumulative_columns, XY),
    Program("cumulative_max", cumulative_max, XY),
    *both("sorted_rows", sorted_rows, XY),
    *both("sorted_columns", sorted_columns, XY),
    *both("medians", medians, XY),
    *both("top_rows", top_rows, XY),
    Program("unique_counts", unique_counts, XY),
    Program("searched", searched, "401x5xf32 307x5xf32"),
    Program("random_features", random_features, XY),
    *both("dropout", dropout, XY, 1.0),
    *both("solves", solves, "128x16x16xf32 128x16x12xf32", 0.4),
    *both("general_solves", general_solves, "128x16x16xf32 128x16x12xf32", 0.9),
    *both("determinants", determinants, "128x16x16xf32"),
    *both("inverses", inverses, "128x16x16xf32", 0.7),
    Program("eigenvalues", eigenvalues, "128x16x16xf32", 1.1),
    Program("singular_values", singular_values, "128x16x16xf32", 1.0),
    *both("wide_solve", wide_solve, "64x64xf32 64x5xf32 1031x5xf32"),
    *both("spectra", spectra, XY),
]
