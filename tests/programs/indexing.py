"""Slices, pads, joins, gathers and scatters along the dimension that is cut."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.programs.model import Program, both, gradient

Array = Any
XY = "401x5xf32 307x5xf32"


def big(x: Array, y: Array) -> Array:
    return jnp.exp(0.1 * (x @ y.T))


def padded_narrower(x: Array, y: Array) -> Array:
    """What is padded is small, and begins before what it is made of."""
    k = lax.pad(big(x, y), 0.5, ((1, 2, 0), (0, -290, 0)))
    return jnp.cumsum(k, 0)[::7].sum(1)


def padded(x: Array, y: Array) -> Array:
    k = jnp.pad(big(x, y), ((1, 2), (0, 3)), constant_values=0.5)
    return (jnp.concatenate([k, 2 * k], 0) ** 2).sum(1)


def rolled(x: Array, y: Array) -> Array:
    k = big(x, y)
    return (k * jnp.roll(k, 3, 0)).sum(1)


def reversed_rows(x: Array, y: Array) -> Array:
    k = big(x, y)
    return (k + k[::-1]).sum(0)


def reversed_columns(x: Array, y: Array) -> Array:
    return (big(x, y)[:, ::-1] * jnp.arange(y.shape[0])).sum(1)


def every_second(x: Array, y: Array) -> Array:
    return big(x, y)[::2, 1::3].sum(1)


def differences(x: Array, y: Array) -> Array:
    k = big(x, y)
    return jnp.abs(k[1:] - k[:-1]).sum(1) + jnp.abs(k[:, 1:] - k[:, :-1]).sum(1)[1:]


def middle(x: Array, y: Array, start: Array) -> Array:
    k = big(x, y)
    return lax.dynamic_slice(k, (start, 0), (200, y.shape[0])).sum(1)


def middle_columns(x: Array, y: Array, start: Array) -> Array:
    k = big(x, y)
    return lax.dynamic_slice(k, (0, start), (x.shape[0], 150)).max(1)


def updated_middle(x: Array, y: Array, z: Array, start: Array) -> Array:
    k = lax.dynamic_update_slice(big(x, y), jnp.sin(z @ y.T), (start, 0))
    return (k @ y).sum(1)


def updated_rows(x: Array, y: Array) -> Array:
    return big(x, y).at[3:50].multiply(2.0).at[7].set(1.0).sum(1)


def diagonal(x: Array, y: Array) -> Array:
    k = big(x, y)
    return jnp.diagonal(k) + k[0, 0]


def set_diagonal(x: Array) -> Array:
    k = big(x, x)
    return k.at[jnp.diag_indices(x.shape[0])].set(0.0).sum(1)


def picked_labels(x: Array, y: Array, labels: Array) -> Array:
    return jnp.log(big(x, y))[jnp.arange(x.shape[0]), labels % y.shape[0]]


def picked_neighbours(x: Array, y: Array, near: Array) -> Array:
    return big(x, y)[jnp.arange(x.shape[0])[:, None], near % y.shape[0]].sum(1)


def picked_next(x: Array, y: Array, labels: Array) -> Array:
    return big(x, y)[jnp.arange(1, x.shape[0]), labels[:-1] % y.shape[0]]


def picked_edges(x: Array, y: Array, near: Array) -> Array:
    rows = jnp.repeat(jnp.arange(x.shape[0]), near.shape[1])
    return big(x, y)[rows, near.reshape(-1) % y.shape[0]]


def counted_rows(x: Array, y: Array) -> Array:
    k = big(x, y)[jnp.arange(x.shape[0])]
    return k.at[jnp.arange(x.shape[0])].add(1.0).sum(1)


def masked_labels(x: Array, y: Array, labels: Array) -> Array:
    return big(x, y).at[jnp.arange(x.shape[0]), labels % y.shape[0]].set(0.0).sum(1)


def picked_rows(x: Array, y: Array, rows: Array) -> Array:
    return big(x, y)[abs(rows) * 7].sum(1)


def merged(x: Array, y: Array) -> Array:
    k = jnp.exp(0.1 * jnp.einsum("abd,cd->abc", x, y))
    return k.reshape(-1, y.shape[0]).sum(0), k.reshape(x.shape[0], -1).max(1)


def unmerged(x: Array, y: Array) -> Array:
    return big(x, y).reshape(20, 20, -1).max(1).sum(-1)


def transposed_twice(x: Array, y: Array) -> Array:
    return jnp.tanh(big(x, y).T).T @ y


def tiled(x: Array, y: Array) -> Array:
    return jnp.tile(big(x, y), (3, 1)).sum(1)


def stacked(x: Array, y: Array) -> Array:
    k = big(x, y)
    return jnp.stack([k, jnp.sin(k), jnp.cos(k)]).max(0).sum(1)


def triangle(x: Array) -> Array:
    return jnp.tril(big(x, x), -1).sum(1) + jnp.triu(big(x, x), 1).sum(0)


def outer_index(x: Array, y: Array) -> Array:
    i = jnp.arange(x.shape[0], dtype=jnp.float32)[:, None]
    j = jnp.arange(y.shape[0], dtype=jnp.float32)[None]
    return (big(x, y) * jnp.exp(-((i - j) ** 2) / 100)).sum(1)


PROGRAMS: list[Program] = [
    Program("padded", padded, XY),
    Program("padded_narrower", padded_narrower, XY),
    Program("padded_gradient", gradient(padded), XY, 0.6),
    *both("rolled", rolled, XY),
    *both("reversed_rows", reversed_rows, XY),
    *both("reversed_columns", reversed_columns, XY),
    Program("every_second", every_second, XY, 1.0, "the body of stablehlo.while uses it unsplit"),
    Program("differences", differences, XY, 0.4),
    *both("middle", middle, XY + " i32"),
    *both("middle_columns", middle_columns, XY + " i32"),
    *both("updated_middle", updated_middle, XY + " 90x5xf32 i32"),
    *both("updated_rows", updated_rows, XY),
    *both("diagonal", diagonal, XY),
    *both("set_diagonal", set_diagonal, "300x5xf32"),
    *both("picked_labels", picked_labels, XY + " 401xi32"),
    *both("picked_neighbours", picked_neighbours, XY + " 401x7xi32"),
    *both("picked_next", picked_next, XY + " 401xi32"),
    *both("picked_edges", picked_edges, XY + " 401x7xi32"),
    *both("counted_rows", counted_rows, XY),
    *both("masked_labels", masked_labels, XY + " 401xi32"),
    *both("picked_rows", picked_rows, XY + " 350xi32"),
    *both("merged", merged, "20x20x5xf32 257x5xf32"),
    *both("unmerged", unmerged, "400x5xf32 257x5xf32"),
    *both("transposed_twice", transposed_twice, XY),
    *both("tiled", tiled, XY),
    *both("stacked", stacked, XY),
    *both("triangle", triangle, "300x5xf32"),
    *both("outer_index", outer_index, XY),
]
