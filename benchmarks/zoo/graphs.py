"""Graph networks and other programs of gathers and segments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Field, Tree, adam, adam_state, f32, i32, sgd

FIELD = Field()

NODES, EDGES = 50_000, 800_000


def total(values: Array, to: Array, nodes: int = NODES) -> Array:
    """Values of edges summed at their nodes."""
    return jax.ops.segment_sum(values, to, num_segments=nodes)


@FIELD.add((f32(128, 128), f32(128, 40)), f32(NODES, 128), i32(EDGES), i32(EDGES), i32(NODES))
def graph_convolution_step(parameters: Tree, x: Array, source: Array, to: Array, labels: Array) -> Tree:
    """A step of two layers of convolution with degrees."""

    def loss(parameters: Tree, x: Array) -> Array:
        degree = jnp.maximum(total(jnp.ones(EDGES), to), 1)
        for weights in parameters:
            x = jax.nn.relu(total(x[source], to) / degree[:, None]) @ weights
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=1).mean()

    return sgd(loss)(parameters, x)


@FIELD.add((f32(64, 256), f32(4, 64), f32(4, 64)), f32(20000, 64), i32(300000), i32(300000))
def graph_attention_gradient(parameters: Tree, x: Array, source: Array, to: Array) -> Tree:
    """The gradient of attention over edges with a softmax by segments."""

    def loss(parameters: Tree) -> Array:
        weights, left, right = parameters
        h = (x @ weights).reshape(-1, 4, 64)
        score = jax.nn.leaky_relu((h * left).sum(-1)[source] + (h * right).sum(-1)[to])
        most = jax.ops.segment_max(score, to, num_segments=20000)
        score = jnp.exp(score - lax.stop_gradient(most)[to])
        share = score / total(score, to, 20000)[to]
        return (jax.nn.elu(total(share[..., None] * h[source], to, 20000)) ** 2).mean()

    return jax.grad(loss)(parameters)


@FIELD.add((f32(144, 128), f32(128, 64), f32(128, 64)), f32(30000, 64), f32(400000, 16), i32(400000), i32(400000))
def message_passing(parameters: Tree, x: Array, edges: Array, source: Array, to: Array) -> Array:
    """Three rounds of messages made of both ends and the edge."""
    first, second, update = parameters
    for _ in range(3):
        message = jax.nn.relu(jnp.concatenate([x[source], x[to], edges], axis=1) @ first) @ second
        x = x + jnp.tanh(jnp.concatenate([x, total(message, to, 30000)], axis=1) @ update)
    return x


@FIELD.add((f32(64, 64), f32(300, 64)), f32(8000, 3), i32(200000), i32(200000))
def continuous_filter_forces(parameters: Tree, place: Array, source: Array, to: Array) -> Array:
    """Forces of a network with radial filters, by the gradient in the positions."""

    def energy(place: Array) -> Array:
        inside, radial = parameters
        distance = jnp.sqrt(((place[source] - place[to]) ** 2).sum(-1) + 1e-6)
        basis = jnp.exp(-10 * (distance[:, None] - jnp.linspace(0, 5, 300)) ** 2)
        x = jnp.ones((8000, 64))
        for _ in range(2):
            x = x + jax.nn.softplus(total(x[source] * (basis @ radial), to, 8000) @ inside)
        return x.sum()

    return -jax.grad(energy)(place)


@FIELD.add(f32(1_000_000), i32(10_000_000), i32(10_000_000))
def page_rank(start: Array, source: Array, to: Array) -> Array:
    """50 rounds of page rank over a list of edges."""
    degree = jnp.maximum(total(jnp.ones(10_000_000), source, 1_000_000), 1)

    def body(_: int, rank: Array) -> Array:
        return 0.15e-6 + 0.85 * total((rank / degree)[source], to, 1_000_000)

    return lax.fori_loop(0, 50, body, start)


@FIELD.add(f32(3000, 3000))
def shortest_paths_all_pairs(lengths: Array) -> Array:
    """Floyd's algorithm, one node at a time."""

    def body(k: int, lengths: Array) -> Array:
        return jnp.minimum(lengths, lengths[:, k, None] + lengths[k])

    return lax.fori_loop(0, 3000, body, lengths)


@FIELD.add(f32(600, 600))
def min_plus_square(lengths: Array) -> Array:
    """Paths of two edges: a product of matrices in minimum and sum."""
    return (lengths[:, :, None] + lengths[None]).min(1)


@FIELD.add(f32(1024, 64, 32), f32(1024, 64, 64), f32(32, 128), f32(128, 10))
def dense_graphs_batched(x: Array, adjacency: Array, first: Array, second: Array) -> Array:
    """Small dense graphs in a batch, with normalised adjacency."""
    degree = lax.rsqrt(adjacency.sum(-1) + 1)
    normal = degree[..., None] * (adjacency + jnp.eye(64)) * degree[:, None]
    x = jax.nn.relu(normal @ x @ first)
    return (normal @ x @ second).mean(1)


@FIELD.add(
    adam_state((f32(100_000, 64), f32(20_000, 64), f32(100_000), f32(20_000))),
    f32(),
    i32(1_000_000),
    i32(1_000_000),
    f32(1_000_000),
)
def matrix_factorisation_step(state: Tree, count: Array, users: Array, items: Array, stars: Array) -> Tree:
    """An Adam step on all ratings at once."""

    def loss(parameters: Tree, users: Array, items: Array, stars: Array) -> Array:
        user, item, generous, liked = parameters
        score = (user[users] * item[items]).sum(-1) + generous[users] + liked[items]
        return ((score - stars) ** 2).mean()

    return adam(loss)(state, count, users, items, stars)


@FIELD.add(f32(2_000_000, 8), i32(2_000_000))
def statistics_by_segment(x: Array, groups: Array) -> tuple[Array, Array, Array]:
    """The mean, deviation and maximum of each group."""
    count = jnp.maximum(total(jnp.ones(2_000_000), groups, 1000), 1)[:, None]
    mean = total(x, groups, 1000) / count
    spread = total((x - mean[groups]) ** 2, groups, 1000) / count
    return mean, jnp.sqrt(spread), jax.ops.segment_max(x, groups, num_segments=1000)


@FIELD.add(f32(8, 4096, 3), f32(67, 128), f32(8, 4096, 64))
def edge_convolution_of_points(points: Array, weights: Array, features: Array) -> Array:
    """The twenty nearest neighbours of each point, gathered and pooled."""
    square = (points**2).sum(-1)
    distances = square[:, :, None] + square[:, None] - 2 * jnp.einsum("bnd,bmd->bnm", points, points)
    near = lax.top_k(-distances, 20)[1]
    both = jnp.concatenate([points, features], axis=-1)
    around = jax.vmap(lambda x, index: x[index])(both, near)
    return jax.nn.relu((around - both[:, :, None]) @ weights).max(2)
