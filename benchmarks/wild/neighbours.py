"""Distances between all points: neighbours, clusters, transport."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, f32, tiles


def _squares(x: Array, y: Array) -> Array:
    return (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T


def brute_force_neighbours(points: Array, count: int) -> tuple[Array, Array]:
    """The nearest neighbours of every point, their distances and numbers.

    https://github.com/scikit-learn/scikit-learn/pull/11136
    Reported: 50,000 samples fail with 32 GB. Cause: the distances of all pairs, 10 GB in f32, sorted for a few columns.
    By hand: chunks of rows that fit into a working memory.
    """
    nearest, numbers = lax.top_k(-jnp.maximum(_squares(points, points), 0), count)
    return jnp.sqrt(-nearest), numbers


def _brute_force_neighbours_by_hand(points: Array, count: int) -> tuple[Array, Array]:
    def some(rows: Array) -> tuple[Array, Array]:
        return lax.top_k(-jnp.maximum(_squares(rows, points), 0), count)

    nearest, numbers = lax.map(some, tiles(points, 500))
    return jnp.sqrt(-nearest).reshape(-1, count), numbers.reshape(-1, count)


def neighbours_by_full_sort(points: Array, count: int) -> Array:
    """Numbers of the nearest neighbours in the sum of absolute differences, by sorting whole rows.

    https://github.com/mars-project/mars/issues/1621
    Reported: insanely large distance matrices where there are many vectors on both sides; here 60,000 of 32 numbers.
    Cause: all distances come first, then their order, 14.4 GB of each. By hand: distances and the best of them, tile by
    tile, in one function.
    """
    distances = jnp.abs(points[:, None] - points[None]).sum(-1)
    return jnp.argsort(distances, axis=1)[:, :count]


def clusters_of_many_runs(points: Array, start: Array, steps: int) -> tuple[Array, Array]:
    """Several runs of Lloyd's algorithm at once, distances by broadcasting, and the inertia of each.

    https://github.com/elixir-nx/scholar/pull/333
    Reported: 7,000 embeddings of 1,536 numbers, 20 clusters, killed in 32 GB. Cause: two tensors of runs x clusters x
    points x numbers, 0.86 GB for each run, in every step. By hand: the square multiplied out as a matrix product.
    """
    size = start.shape[1]

    def step(_: Array, centres: Array) -> Array:
        nearest = ((points[None, :, None] - centres[:, None]) ** 2).sum(-1).argmin(-1)
        hot = jax.nn.one_hot(nearest, size, dtype=points.dtype)
        return jnp.einsum("rnk,nd->rkd", hot, points) / jnp.maximum(hot.sum(1), 1)[..., None]

    centres = lax.fori_loop(0, steps, step, start)
    return centres, ((points[None, :, None] - centres[:, None]) ** 2).sum(-1).min(-1).sum(-1)


def clusters_of_millions(points: Array, start: Array) -> tuple[Array, Array]:
    """One step of Lloyd's algorithm: the nearest centre of each point, then sums by segment.

    https://github.com/h2oai/h2o4gpu/issues/279
    Reported: 5,000,000 records, 256 clusters. Cause: the distances alone are 5.1 GB; k-means++ needs more. By hand:
    batches of records where memory does not suffice.
    """
    nearest = _squares(points, start).argmin(1)
    sums = jax.ops.segment_sum(points, nearest, start.shape[0])
    counts = jax.ops.segment_sum(jnp.ones(points.shape[0]), nearest, start.shape[0])
    return sums / jnp.maximum(counts, 1)[:, None], nearest


def sinkhorn_potentials(x: Array, y: Array, steps: int) -> tuple[Array, Array]:
    """Entropic transport between two clouds, in logs, until the marginals fit or the steps end.

    https://github.com/ott-jax/ott/issues/20
    Reported: 65,536 and 32,768 points on 16 GB. Cause: nested vmaps make the whole cost in each step, 8.6 GB. By hand:
    a scan over batches of 1,024 rows, and over columns for the other side.
    """
    cost = _squares(x, y)
    log_rows, log_columns = -jnp.log(len(x)), -jnp.log(len(y))

    def go_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[0] < steps) & (state[3] > 1e-3)

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        number, f, g, _ = state
        g = log_columns - jax.nn.logsumexp(f[:, None] - cost, axis=0)
        new = log_rows - jax.nn.logsumexp(g[None] - cost, axis=1)
        return number + 1, new, g, jnp.abs(new - f).max()

    return lax.while_loop(go_on, step, (0, jnp.zeros(len(x)), jnp.zeros(len(y)), jnp.float32(jnp.inf)))[1:3]


def cosine_potential(x: Array, y: Array, f: Array) -> Array:
    """Half a step of Sinkhorn's algorithm where the cost is one minus the cosine.

    https://github.com/ott-jax/ott/issues/504
    Reported: 240,000 and 400,000 points; runs out of memory where squared distances do not, whatever the batch. Cause:
    384 GB of costs. By hand: only the squared distance has a batched form that works.
    """
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    y = y / jnp.linalg.norm(y, axis=1, keepdims=True)
    cost = 1 - x @ y.T
    return -0.05 * jax.nn.logsumexp((f[:, None] - cost) / 0.05, axis=0)


def flow_between_scenes(a: Array, b: Array, first: Array, second: Array) -> Array:
    """The motion of each point: unbalanced transport of features, only within a radius, then a weighted mean.

    https://github.com/valeoai/FLOT/issues/1
    Reported: 100,000 points of a lidar. Cause: the similarity of all pairs, 40 GB, its support and the plan. By hand:
    scenes in overlapping pillars, or a sparse matrix.
    """
    a = a / jnp.sqrt((a**2).sum(1, keepdims=True) + 1e-8)
    b = b / jnp.sqrt((b**2).sum(1, keepdims=True) + 1e-8)
    plan = jnp.exp((a @ b.T - 1) / 0.3) * (_squares(first, second) < 10.0**2)
    rows = jnp.full(len(first), 1 / len(first))
    for _ in range(2):
        columns = (1 / len(second) / (plan.T @ rows + 1e-8)) ** 0.8
        rows = (1 / len(first) / (plan @ columns + 1e-8)) ** 0.8
    plan = rows[:, None] * plan * columns[None]
    return plan @ second / (plan.sum(1, keepdims=True) + 1e-8) - first


def chamfer_loss(made: Array, target: Array) -> Array:
    """How far two sets of points are, each to the nearest of the other, for several views.

    https://github.com/chenchao15/2D_projection_matching/issues/3
    Reported: 4 views of 2,000 and 5,000 points fit in 11 GB, 8,000 and 16,000 points are wanted. Cause: differences of
    all pairs, 4 x 16000 x 20000 x 2, 10 GB. By hand: fewer sampled points.
    """
    distances = ((made[:, :, None] - target[:, None]) ** 2).sum(-1)
    return distances.min(2).mean() + distances.min(1).mean()


ENTRIES = (
    Entry(
        brute_force_neighbours,
        (f32(50_000, 50), 10),
        (f32(200, 8), 5),
        (f32(3000, 50), 10),
        _brute_force_neighbours_by_hand,
    ),
    Entry(neighbours_by_full_sort, (f32(60_000, 32), 10), (f32(160, 4), 5), (f32(1500, 16), 10)),
    Entry(
        clusters_of_many_runs,
        (f32(7000, 1536), f32(10, 20, 1536), 10),
        (f32(400, 8), f32(6, 20, 8), 3),
        (f32(2000, 512), f32(5, 20, 512), 5),
    ),
    Entry(
        clusters_of_millions,
        (f32(5_000_000, 32), f32(256, 32)),
        (f32(2000, 4), f32(16, 4)),
        (f32(200_000, 32), f32(128, 32)),
    ),
    Entry(
        sinkhorn_potentials,
        (f32(65_536, 3), f32(32_768, 3), 50),
        (f32(200, 3), f32(150, 3), 4),
        (f32(4000, 3), f32(3000, 3), 12),
    ),
    Entry(
        cosine_potential,
        (f32(240_000, 50), f32(400_000, 50), f32(240_000)),
        (f32(200, 8), f32(150, 8), f32(200)),
        (f32(4000, 50), f32(6000, 50), f32(4000)),
    ),
    Entry(
        flow_between_scenes,
        (f32(100_000, 64), f32(100_000, 64), f32(100_000, 3), f32(100_000, 3)),
        (f32(200, 8), f32(150, 8), f32(200, 3), f32(150, 3)),
        (f32(3000, 64), f32(3000, 64), f32(3000, 3), f32(3000, 3)),
    ),
    Entry(
        chamfer_loss,
        (f32(4, 16_000, 2), f32(4, 20_000, 2)),
        (f32(2, 100, 2), f32(2, 150, 2)),
        (f32(4, 1500, 2), f32(4, 1500, 2)),
        gradient=(0,),
    ),
)
