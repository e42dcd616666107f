"""Messages on graphs and sparse matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .entry import Array, Entry, f32, i32


def messages_along_edges(
    nodes: Array, edges: Array, senders: Array, receivers: Array, first: Array, second: Array
) -> Array:
    """A step of a graph network: nodes gathered at both ends, a network over each edge, sums at the receivers.

    https://github.com/google-deepmind/graph_nets/issues/81
    Reported: graphs of 400 nodes and 7,000 edges; 21,367,800 edges in one batch. Cause: features of both ends and what
    the network makes of them for each edge, 5 to 16 GB each. By hand: fewer graphs in a batch.
    """
    given = jnp.concatenate([nodes[senders], nodes[receivers], edges], -1)
    made = jax.nn.relu(given @ first) @ second
    sums = jax.ops.segment_sum(made, receivers, nodes.shape[0])
    return (jnp.tanh(nodes + sums) ** 2).mean()


def edges_as_one_hot_rows(x: Array, senders: Array, receivers: Array, first: Array, second: Array) -> Array:
    """Relations of a full graph: sender and receiver matrices of one-hot rows, and a network over each pair.

    https://github.com/ethanfetaya/NRI/issues/19
    Reported: graphs of 10,000 nodes are wanted; here 1,000, a million edges. Cause: two matrices of edges x nodes, 4 GB
    each, and features for each edge. By hand: gather and scatter in their place, and not all of the pairs.
    """
    size = x.shape[0]
    sent, received = jax.nn.one_hot(senders, size), jax.nn.one_hot(receivers, size)
    made = jax.nn.elu(jnp.concatenate([sent @ x, received @ x], -1) @ first)
    return (jnp.tanh((received.T @ made) / size @ second) ** 2).mean()


def edge_networks(states: Array, relations: Array, mask: Array, weights: Array) -> Array:
    """Message passing in which a network makes a matrix for each pair of strokes.

    https://github.com/isi-vista/adam/issues/1201
    Reported: 599 scenes of up to 42 strokes; 8 GB for the outputs of the edges alone. Cause: a matrix of 45 x 45 for
    each of 42 x 42 pairs. By hand: scenes with many strokes are left out.
    """
    size = states.shape[-1]
    matrices = jnp.tanh(relations @ weights).reshape(*relations.shape[:-1], size, size)
    for _ in range(2):
        messages = jnp.einsum("sijab,sjb->sia", matrices * mask[..., None, None], states)
        states = jnp.tanh(states + messages)
    return (states**2).mean()


def sparse_times_dense(values: Array, rows: Array, columns: Array, dense: Array) -> Array:
    """A matrix of coordinates times a dense one, and the gradient by its values.

    https://github.com/jax-ml/jax/issues/14642
    Reported: copies of the dense matrix's rows for each entry; the size is not in the thread, here 10 million entries
    and 100 columns. Cause: entries x columns, 4 GB, gathered, multiplied and then summed by row. By hand: cuSPARSE, for
    sorted entries.
    """
    products = values[:, None] * dense[columns]
    return (jnp.zeros_like(dense).at[rows].add(products) ** 2).sum()


def sparse_times_sparse(
    left: Array, left_rows: Array, left_columns: Array, right: Array, right_rows: Array, right_columns: Array, size: int
) -> Array:
    """Two matrices of coordinates multiplied: each entry of one against each of the other.

    https://github.com/jax-ml/jax/issues/18249
    Reported: two of 256 x 1024, a fifth filled; 176 GB, where the dense ones go through. Cause: all pairs of 52,428
    entries are formed, masked where columns meet, and scattered. By hand: dense matrices.
    """
    meet = left_columns[:, None] == right_columns[None]
    products = jnp.where(meet, left[:, None] * right[None], 0)
    return jnp.zeros((size, size)).at[left_rows[:, None], right_rows[None]].add(products)


def looked_up_volume(volume: Array, places: Array) -> Array:
    """A volume read at many places, weighted and summed, differentiated by the volume.

    https://github.com/jax-ml/jax/issues/30015
    Reported: 2,048 cubed places in a volume of 128 cubed; 129 GB, and 224 GB with the gradient. Cause: the scatter of
    the gradient wants the indices in another form, copied, and its updates written out. By hand: smaller integers do
    not help; the thread is open.
    """
    return (volume[places[:, 0], places[:, 1], places[:, 2]] * 2.5).sum()


ENTRIES = (
    Entry(
        messages_along_edges,
        (f32(1_220_000, 64), f32(21_367_800, 16), i32(21_367_800), i32(21_367_800), f32(144, 128), f32(128, 64)),
        (f32(40, 8), f32(1200, 4), i32(1200), i32(1200), f32(20, 16), f32(16, 8)),
        (f32(5000, 64), f32(60_000, 16), i32(60_000), i32(60_000), f32(144, 128), f32(128, 64)),
        gradient=(4, 5),
    ),
    Entry(
        edges_as_one_hot_rows,
        (f32(1000, 64), i32(1_000_000), i32(1_000_000), f32(128, 128), f32(128, 64)),
        (f32(30, 4), i32(900), i32(900), f32(8, 16), f32(16, 4)),
        (f32(300, 32), i32(90_000), i32(90_000), f32(64, 64), f32(64, 32)),
        gradient=(3, 4),
    ),
    Entry(
        edge_networks,
        (f32(599, 42, 45), f32(599, 42, 42, 8), f32(599, 42, 42), f32(8, 2025)),
        (f32(8, 6, 8), f32(8, 6, 6, 4), f32(8, 6, 6), f32(4, 64)),
        (f32(32, 20, 32), f32(32, 20, 20, 8), f32(32, 20, 20), f32(8, 1024)),
        gradient=(3,),
    ),
    Entry(
        sparse_times_dense,
        (f32(10_000_000), i32(10_000_000), i32(10_000_000), f32(100_000, 100)),
        (f32(2000), i32(2000), i32(2000), f32(50, 16)),
        (f32(150_000), i32(150_000), i32(150_000), f32(5000, 100)),
        gradient=(0,),
    ),
    Entry(
        sparse_times_sparse,
        (f32(52_428), i32(52_428), i32(52_428), f32(52_428), i32(52_428), i32(52_428), 256),
        (f32(150), i32(150), i32(150), f32(150), i32(150), i32(150), 20),
        (f32(6000), i32(6000), i32(6000), f32(6000), i32(6000), i32(6000), 256),
    ),
    Entry(
        looked_up_volume,
        (f32(128, 128, 128), i32(2048**3, 3)),
        (f32(12, 12, 12), i32(8000, 3)),
        (f32(64, 64, 64), i32(10_000_000, 3)),
        gradient=(0,),
    ),
)
