"""The tasks: rows of a huge matrix as one writes them in JAX, and in batches, as one writes them to save memory.

n: rows, m: columns, d: numbers a point. All arrays are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from benchmarks.wild.entry import tiles

Array = Any
Function = Callable[..., Any]
Shape = tuple[int, ...]
HEADS, WIDTH = 4, 64
NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to compute.

    rows: some rows of the result from those of the first `cut` arguments and from all of the others.
    program: makes what is timed of a function that computes all rows. shapes: of its arguments.
    library: what jax itself has for it, if it has it. keops: the name of its KeOps formula, or "".
    """

    name: str
    rows: Function
    shapes: tuple[Shape, ...]
    cut: int = 1
    program: Callable[[Function], Function] = lambda rows: rows
    library: Function | None = None
    keops: str = ""

    @property
    def naive(self) -> Function:
        """All rows at once."""
        return self.program(self.rows)

    def by_map(self, batch: int) -> Function:
        """With jax.lax.map, one row written and `batch` of them computed at a time, and again for a gradient."""

        def mapped(*arguments: Array) -> Any:
            def row(one: tuple[Array, ...]) -> Any:
                made = self.rows(*(each[None] for each in one), *arguments[self.cut :])
                return jax.tree.map(lambda each: each[0], made)

            return lax.map(jax.checkpoint(row), arguments[: self.cut], batch_size=batch)

        return self.program(mapped)

    def by_hand(self, batch: int) -> Function:
        """In a loop over blocks of at most `batch` rows, each under jax.checkpoint."""

        def blocked(*arguments: Array) -> Any:
            def block(some: tuple[Array, ...]) -> Any:
                return self.rows(*some, *arguments[self.cut :])

            made = lax.map(jax.checkpoint(block), tuple(tiles(each, batch) for each in arguments[: self.cut]))
            return jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), made)

        return self.program(blocked)


def squared_distances(x: Array, y: Array) -> Array:
    """[n, d] and [m, d] to [n, m]."""
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


def l1_distances(x: Array, y: Array) -> Array:
    """[n, d] and [m, d] to [n, m]."""
    return jnp.abs(x[:, None, :] - y[None, :, :]).sum(-1)


def gaussian(x: Array, y: Array, v: Array) -> Array:
    """A Gaussian kernel matrix times a vector."""
    return jnp.exp(-squared_distances(x, y)) @ v


def laplacian(x: Array, y: Array, v: Array) -> Array:
    """The kernel exp(-|x - y|_1) times a vector."""
    return jnp.exp(-l1_distances(x, y)) @ v


def sinkhorn_step(x: Array, y: Array, potential: Array) -> Array:
    """The potential of one side from that of the other, in logarithms."""
    return -0.05 * logsumexp((potential - squared_distances(x, y)) / 0.05, axis=1)


def nearest(x: Array, y: Array) -> Array:
    """The index of the nearest of y."""
    return jnp.argmin(squared_distances(x, y), axis=1)


def neighbours(x: Array, y: Array) -> Array:
    """The squared distances to the ten nearest of y, rising."""
    return -lax.top_k(-squared_distances(x, y), NEIGHBOURS)[0]


def distance_sums(x: Array, y: Array) -> Array:
    """The sum of the distances to all of y, of which the energy distance is made."""
    return jnp.sqrt(squared_distances(x, y) + 1e-6).sum(1)


def gravity(x: Array, y: Array, masses: Array) -> Array:
    """The acceleration of each of x by bodies at y."""
    apart = y[None, :, :] - x[:, None, :]
    strength = masses * ((apart**2).sum(-1) + 1e-2) ** -1.5
    return (strength[:, :, None] * apart).sum(1)


def weighted(kernel: Function) -> Function:
    """Rows of v' K w, for the gradient of the form."""

    def rows(x: Array, v: Array, y: Array, w: Array) -> Array:
        return v * kernel(x, y, w)

    return rows


def gradient_of_form(rows: Function) -> Function:
    """The gradient of v' K(x, x) v by x."""

    def form(x: Array, v: Array) -> Array:
        return rows(x, v, x, v).sum()

    return jax.grad(form)


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Softmax attention of several heads: [n, heads, width] and twice [m, heads, width] to the first."""
    scores = jnp.einsum("qhd,khd->hqk", queries, keys) / queries.shape[-1] ** 0.5
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), values)


def gradient_of_squares(rows: Function) -> Function:
    """The gradient of the sum of the squared rows by all three arguments."""

    def loss(*arguments: Array) -> Array:
        return (rows(*arguments) ** 2).sum()

    return jax.grad(loss, (0, 1, 2))


def tasks(part: int = 1) -> list[Task]:
    """All tasks; `part` divides the number of points and of tokens."""
    many, some, few = 60_000 // part, 20_000 // part, 10_000 // part
    points, row = (some, 3), (some,)
    tokens = ((4096 // part, HEADS, WIDTH),) * 3
    library = jax.nn.dot_product_attention
    return [
        Task("Gaussian kernel times vector", gaussian, (points, points, row), keops="gaussian"),
        Task("the same, more points", gaussian, ((many, 3), (many, 3), (many,)), keops="gaussian"),
        Task("L1 kernel times vector", laplacian, (points, points, row), keops="laplacian"),
        Task("Sinkhorn step (log-sum-exp)", sinkhorn_step, (points, points, row), keops="sinkhorn_step"),
        Task("nearest neighbour", nearest, (points, points), keops="nearest"),
        Task("ten nearest neighbours", neighbours, (points, points), keops="neighbours"),
        Task("sums of distances", distance_sums, (points, points), keops="distance_sums"),
        Task("gravity", gravity, (points, points, row), keops="gravity"),
        Task(
            "gradient of v'Kv, Gaussian",
            weighted(gaussian),
            ((few, 3), (few,)),
            2,
            gradient_of_form,
            None,
            "gaussian_gradient",
        ),
        Task(
            "gradient of v'Kv, L1",
            weighted(laplacian),
            ((few, 3), (few,)),
            2,
            gradient_of_form,
            None,
            "laplacian_gradient",
        ),
        Task("attention", attention, tokens, library=library, keops="attention"),
        Task(
            "gradient of attention",
            attention,
            tokens,
            1,
            gradient_of_squares,
            gradient_of_squares(library),
        ),
    ]
