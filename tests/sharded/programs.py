"""Programs for eight devices, as people write them with jax.jit and jax.shard_map; small enough to run on a CPU's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from . import edges, fully_sharded, stencils
from .program import DEVICES, Program, grid, line, shuffled, spec

Array = Any


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 8
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def heads(weights: list[Array], x: Array) -> Array:
    q, k, v = (jnp.einsum("bsd,dhe->bhse", x, each) for each in weights[:3])
    mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8) @ v
    return jnp.einsum("bhse,hed->bsd", mixed, weights[3])


def block(weights: list[Any], x: Array) -> Array:
    x = x + heads(weights[0], x)
    return x + jax.nn.gelu(x @ weights[1]) @ weights[2]


def stacked(weights: list[Any], x: Array) -> Array:
    for each in weights:
        x = block(each, x)
    return (x**2).mean()


def mean_square(function: Callable[..., Array], *arguments: Array) -> Array:
    return (function(*arguments) ** 2).mean()


def layers(weights: list[Array], x: Array) -> Array:
    for each in weights:
        x = jnp.tanh(x @ each)
    return (x**2).mean()


def scanned(weights: Array, x: Array) -> Array:
    return (lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0] ** 2).mean()


def squared(x: Array, y: Array) -> Array:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def cross_entropy(weights: Array, x: Array, labels: Array) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ weights), labels[:, None], -1).mean()


def sparse_process(inducing: Array, x: Array, y: Array) -> Array:
    def kernel(a: Array, b: Array) -> Array:
        return jnp.exp(-0.5 * squared(a, b))

    one = jnp.eye(inducing.shape[0])
    factor = jnp.linalg.cholesky(kernel(inducing, inducing) + 1e-2 * one)
    a = jax.scipy.linalg.solve_triangular(factor, kernel(inducing, x), lower=True)
    other = jnp.linalg.cholesky(a @ a.T + one)
    c = jax.scipy.linalg.solve_triangular(other, a @ y, lower=True)
    return -jnp.log(jnp.diagonal(other)).sum() + 0.5 * (c**2).sum()


def ring_attention(q: Array, k: Array, v: Array) -> Array:
    def body(q: Array, k: Array, v: Array) -> Array:
        def step(carry: Any, _: None) -> Any:
            k, v, total, out = carry
            e = jnp.exp(q @ k.T / 8)
            around = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
            return (lax.ppermute(k, "d", around), lax.ppermute(v, "d", around), total + e.sum(-1), out + e @ v), None

        zero = 0 * q
        (_, _, total, out), _ = lax.scan(step, (k, v, zero[:, 0], zero), None, length=DEVICES)
        return out / total[:, None]

    return jax.shard_map(body, mesh=line(), in_specs=(P("d"),) * 3, out_specs=P("d"))(q, k, v)


def gathered(w: Array, x: Array) -> Array:
    def body(w: Array, x: Array) -> Array:
        h = jnp.tanh(x @ lax.all_gather(w, "d", axis=0, tiled=True))
        return lax.psum_scatter((h[:, :, None] * h[:, None, :]).sum(0), "d", scatter_dimension=0, tiled=True)

    return jax.shard_map(body, mesh=line(), in_specs=(P("d"), P("d")), out_specs=P("d"))(w, x)


def talking(x: Array, w: Array) -> Array:
    """Every collective along one axis of a grid, in a computation that leaves the other to the partitioner."""

    def body(x: Array, w: Array) -> Array:
        y = jnp.tanh(x @ w)
        y = y + lax.psum(y, "d") + lax.axis_index("d")
        z = lax.psum_scatter(lax.all_gather(y, "d", axis=0, tiled=True), "d", scatter_dimension=0, tiled=True)
        z = lax.ppermute(z, "d", [(0, 1), (1, 0)]) + lax.all_to_all(y, "d", 0, 0, tiled=True)
        scores = jnp.exp(jnp.tanh(z.T @ z))
        return z + lax.pmax(scores.max(0) + scores.sum(1), "d")

    return jax.shard_map(body, mesh=grid(), in_specs=(P("d"), P()), out_specs=P("d"), axis_names={"d"})(x, w)


def drawn(key: Array) -> Array:
    """Numbers that a computation draws from a state of its own: the same along the axis that is left."""

    def body(key: Array) -> Array:
        _, words = lax.rng_bit_generator(key, (64, 64), dtype=jnp.uint32)
        return lax.with_sharding_constraint(words, NamedSharding(grid(), P(None, "m")))

    return jax.shard_map(body, mesh=grid(), in_specs=(P(),), out_specs=P("d"), axis_names={"d"}, check_vma=False)(key)


def constrained(weights: list[Array], x: Array) -> list[Array]:
    fixed = partial(lax.with_sharding_constraint)

    def loss(weights: list[Array], x: Array) -> Array:
        for each in weights:
            x = fixed(jnp.tanh(x @ fixed(each, NamedSharding(line(), P()))), NamedSharding(line(), P("d")))
        return (x**2).mean()

    gradients = jax.grad(loss)(weights, x)
    cut = NamedSharding(line(), P("d"))
    return [fixed(w - 0.1 * fixed(d, cut), cut) for w, d in zip(weights, gradients, strict=True)]


def uneven(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    """All that is read along a dimension which eight devices do not divide: what it is padded with counts nowhere."""
    y = jnp.exp(lax.with_sharding_constraint(x @ w, NamedSharding(line(), P(None, "d"))))
    return y.sum(1), y @ v, (-y).max(1), y.min(1), jnp.argmin(jnp.round(y), 1)


def uneven_rows(x: Array, w: Array, labels: Array, i: Array, words: NamedSharding) -> tuple[Array, ...]:
    """Rows that indices find along a dimension which the devices do not divide, some beyond its end."""

    def loss(w: Array) -> Array:
        logits = jax.nn.log_softmax(lax.with_sharding_constraint(x @ w, words))
        return -jnp.take_along_axis(logits, labels[:, None] % w.shape[1], -1).mean()

    y = jnp.exp(lax.with_sharding_constraint(x @ w, words))
    i = 2 * i - 400
    kinds = lax.GatherDimensionNumbers((0,), (1,), (1,))
    found = lax.gather(y, i[:, None], kinds, (64, 1), mode="promise_in_bounds")
    places = jnp.stack([jnp.arange(24), i], 1).astype(jnp.uint32)
    one_each = lax.gather(y, places, lax.GatherDimensionNumbers((), (0, 1), (0, 1)), (1, 1), mode="clip")
    return *jax.value_and_grad(loss)(w), found, one_each, y.at[:, i].add(1.0, mode="drop").sum(1)


def columns_in_turn(x: Array, w: Array, i: Array) -> Array:
    """Columns, one in each step, of a tensor that a loop carries, with columns that the devices do not divide."""
    y = jnp.exp(lax.with_sharding_constraint(x @ w, NamedSharding(grid(), P(None, "d"))))
    return lax.scan(lambda y, k: (y.at[:, k].multiply(1.5), lax.dynamic_slice(y, (0, k), (4, 1))), y, i)[1]


def convolved(x: Array, k: Array, **given: Any) -> Array:
    """Images of two dimensions, the channels last."""
    given = {"window_strides": (1, 1), "padding": "SAME", **given}
    return lax.conv_general_dilated(x, k, dimension_numbers=("NHWC", "HWIO", "NHWC"), **given)


def stem(x: Array, k: Array, first: Array) -> Array:
    """Convolutions and pools of all kinds along a dimension that is cut: what neighbours have is read at its ends."""
    y = jax.nn.relu(convolved(x, first))
    y = convolved(jnp.tanh(y), k, rhs_dilation=(2, 2)) + convolved(y, k, padding=((2, 0), (1, 1)))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
    y = lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return convolved(y, k, window_strides=(2, 2))


def classifier(x: Array, k: Array, first: Array) -> Array:
    """As in training: what reads a maximum of windows that overlap, XLA spreads wrongly."""
    y = convolved(jax.nn.relu(convolved(x, first)), k, rhs_dilation=(2, 2))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return (convolved(jnp.tanh(y), k, window_strides=(2, 2)) ** 2).mean()


def turned_up(x: Array, k: Array) -> tuple[Array, ...]:
    """A convolution that makes more than it reads, one of each channel alone, and windows longer than a part."""
    up = lax.conv_general_dilated(
        x, k, (1, 1), ((2, 1), (2, 1)), lhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    alone = convolved(x, k[:, :, :1], feature_group_count=8)
    long = lax.reduce_window(x, 0.0, lax.add, (1, 41, 1, 1), (1, 1, 1, 1), "SAME")
    return up, alone, long, convolved(x[:, :61], k)


def orders(x: Array, i: Array) -> tuple[Array, ...]:
    """Ops that are given tensors which are cut along the same axes in another order, or along others."""
    fixed = partial(lax.with_sharding_constraint, shardings=NamedSharding(grid(), P(None, ("d", "m"))))
    y = lax.with_sharding_constraint(x, NamedSharding(grid(), P("m", None)))
    return fixed(x[i]), fixed(jnp.sinh(x)), fixed(lax.sort((x, y), num_keys=1)[1]), jnp.concatenate([x, y])


def made() -> dict[str, Program]:
    """All programs by name. Called where there are eight devices."""
    one, two = line(), grid()
    on = partial(spec, one)
    queries = on((4, 512, 64), None, "d")
    all_of = on((4, 512, 64))
    attended = [on((64, 4, 16))] * 3 + [on((4, 16, 64))]
    tensor_parallel = [
        [spec(two, (64, 4, 16), None, "m")] * 3 + [spec(two, (4, 16, 64), "m")],
        spec(two, (64, 256), None, "m"),
        spec(two, (256, 64), "m"),
    ]
    points = on((2048, 3), "d")
    whole = on((2048, 3))
    labels = on((512,), dtype=jnp.int32)
    rows = on((1024, 64), "d")
    matrices = [on((256, 256), "d")] * 3
    square_loss = jax.value_and_grad(partial(mean_square, block))

    def attention_loss(q: Array, k: Array, v: Array) -> Array:
        return (attention(q, k, v) ** 2).sum()

    def ring_loss(q: Array, k: Array, v: Array) -> Array:
        return (ring_attention(q, k, v) ** 2).sum()

    return {
        **stencils.made(),
        **edges.made(),
        **fully_sharded.made(layers=6, rows=8192, width=128, gain=4),
        "batch": Program(jax.grad(partial(mean_square, heads)), (attended, on((16, 256, 64), "d")), 8),
        "megatron": Program(square_loss, (tensor_parallel, spec(two, (4, 256, 64), "d")), 6),
        "megatron, three layers": Program(jax.grad(stacked), ([tensor_parallel] * 3, spec(two, (8, 256, 64), "d")), 6),
        "device_ids": Program(
            square_loss,
            (
                [
                    [spec(shuffled(), (64, 4, 16), None, "m")] * 3 + [spec(shuffled(), (4, 16, 64), "m")],
                    spec(shuffled(), (64, 256), None, "m"),
                    spec(shuffled(), (256, 64), "m"),
                ],
                spec(shuffled(), (4, 256, 64), "d"),
            ),
            2,
        ),
        "queries": Program(jax.grad(attention_loss, (0, 1, 2)), (queries, all_of, all_of), 2),
        "keys": Program(attention, (on((4, 2048, 64)), on((4, 2048, 64), None, "d"), on((4, 2048, 64), None, "d")), 12),
        "fsdp": Program(constrained, (matrices, on((1024, 256), "d")), 1.5, {"donate_argnums": 0}),
        "fsdp without constraints": Program(
            lambda ws, x: [w - 0.1 * d for w, d in zip(ws, jax.grad(layers)(ws, x), strict=True)],
            (matrices, on((1024, 256), "d")),
            1.5,
        ),
        "kernel times vector": Program(lambda x, y, v: jnp.exp(-squared(x, y)) @ v, (points, whole, on((2048,))), 8),
        "neighbours of points": Program(
            lambda p, q: lax.top_k(-squared(q, p), 5), (on((4096, 8), "d"), on((100, 8))), 8
        ),
        "neighbours of queries": Program(
            lambda p, q: lax.top_k(-squared(q, p), 5), (on((2048, 8)), on((1024, 8), "d")), 8
        ),
        "sparse process": Program(
            jax.value_and_grad(sparse_process, (0, 1)), (on((32, 3)), on((4096, 3), "d"), on((4096,), "d")), 2
        ),
        "cross entropy, batch": Program(
            jax.value_and_grad(cross_entropy, (0, 1)),
            (on((64, 2000)), on((1024, 64), "d"), on((1024,), "d", dtype=jnp.int32)),
            2,
        ),
        "cross entropy, vocabulary": Program(
            jax.value_and_grad(cross_entropy, (0, 1)), (on((64, 8000), None, "d"), on((512, 64)), labels), 60
        ),
        "ring": Program(ring_attention, (on((2048, 64), "d"),) * 3),
        "ring, gradient": Program(jax.grad(ring_loss, (0, 1, 2)), (on((2048, 64), "d"),) * 3, 2),
        "shard_map": Program(
            jax.grad(lambda w, x: (gathered(w, x) ** 2).sum()), (on((64, 64), "d"), on((2048, 64), "d")), 8
        ),
        "shard_map over some axes": Program(
            lambda x: jax.shard_map(
                lambda x: jnp.tanh(x[:, :, None] - x[:, None, :]).sum(-1),
                mesh=two,
                in_specs=P("d"),
                out_specs=P("d"),
                axis_names={"d"},
            )(x),
            (spec(two, (64, 256), "d", "m"),),
            30,
        ),
        "talking along one axis": Program(talking, (spec(two, (64, 32), "d"), spec(two, (32, 1024), None, "m")), 2),
        "drawn along one axis": Program(drawn, (spec(two, (4,), dtype=jnp.uint32),)),
        "pmap": Program(
            lambda x: jax.pmap(lambda x: jnp.exp(jnp.sin(x[:, None]) - jnp.cos(x[None])).max(1))(x),
            (on((8, 512), "d"),),
            8,
        ),
        "scan, batch": Program(jax.grad(scanned), (on((6, 128, 128)), on((1024, 128), "d"))),
        "scan, weights": Program(jax.grad(scanned), (on((6, 128, 128), None, None, "d"), on((1024, 128))), 8),
        "explicit axes": Program(
            lambda x, y: jnp.exp(-squared(x, y)) @ jnp.ones(y.shape[0]),
            (spec(line(AxisType.Explicit), (2048, 3), "d"), spec(line(AxisType.Explicit), (2048, 3))),
            8,
        ),
        "an axis of one": Program(
            jax.grad(partial(mean_square, heads)),
            ([spec(grid(8), (64, 4, 16))] * 3 + [spec(grid(8), (4, 16, 64))], spec(grid(8), (16, 256, 64), "d")),
            8,
        ),
        "no even parts": Program(
            lambda x, w: jnp.exp(lax.with_sharding_constraint(x @ w, NamedSharding(one, P(None, "d")))).sum(0),
            (on((512, 64)), on((64, 1001))),
            2,
        ),
        "uneven sums": Program(uneven, (on((64, 64)), on((64, 1001)), on((1001, 16)))),
        "uneven rows": Program(
            partial(uneven_rows, words=NamedSharding(line(), P(None, "d"))),
            (on((64, 64)), on((64, 1001)), on((64,), dtype=jnp.int32), on((24,), dtype=jnp.int32)),
        ),
        "uneven rows, spread indices": Program(
            partial(uneven_rows, words=NamedSharding(two, P(None, "m"))),
            (
                *(spec(two, shape) for shape in ((64, 64), (64, 1001))),
                *(spec(two, (size,), "d", dtype=jnp.int32) for size in (64, 24)),
            ),
        ),
        "columns in turn": Program(
            columns_in_turn, (spec(two, (4, 8)), spec(two, (8, 5)), spec(two, (16,), dtype=jnp.int32))
        ),
        "halves": Program(
            lambda x: (lambda y: y[0] * 100 + y[1])(x.reshape(2, -1)), (spec(grid(4), (24,), ("d", "m")),)
        ),
        "uneven mask": Program(
            lambda x: jnp.where(
                np.arange(27).reshape(3, 9) % 4 < 2,
                lax.with_sharding_constraint(x, NamedSharding(one, P(None, None, "d"))),
                1,
            ).max(2),
            (on((4, 3, 9)),),
        ),
        "cut further": Program(
            lambda x, w: jnp.exp(
                lax.with_sharding_constraint(x, NamedSharding(two, P(("d", "m"))))
                @ lax.with_sharding_constraint(w, NamedSharding(two, P("m")))
            ).sum(0),
            (spec(two, (12, 16), "d"), spec(two, (16, 20), "m")),
        ),
        "orders of axes": Program(orders, (spec(two, (16, 48), None, ("m", "d")), spec(two, (8,), dtype=jnp.int32))),
        "every third": Program(lambda x: (jnp.sin(x)[:, 1::3], x[:, ::2]), (on((64, 48), None, "d"),)),
        "complex constants": Program(lambda x: x[None] * (np.arange(24) * 1j)[:, None], (on((16,), "d"),)),
        "dropout": Program(
            lambda k, x: jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(k), 0.9, x.shape), x, 0).sum(0),
            (on((2,), dtype=jnp.uint32), on((1024, 512), "d")),
            4,
        ),
        "causal mask": Program(
            lambda q, k: jnp.where(jnp.arange(1024)[:, None] >= jnp.arange(1024)[None], q @ k.T, -1e9).max(1),
            (rows, on((1024, 64))),
            4,
        ),
        "maximum from a start": Program(lambda x: lax.reduce(x, np.float32(1), lax.max, (0,)), (rows,), 0),
        "place of the largest": Program(lambda x: jnp.argmax(jnp.sin(x), 0), (rows,), 0),
        "place of the largest word": Program(
            lambda x, w: jnp.argmax(jnp.round(x @ w), 1), (on((256, 64)), on((64, 8000), None, "d")), 8
        ),
        "places along two axes": Program(
            lambda x: (jnp.argmax(jnp.round(x), 0), jnp.argmin(jnp.round(x))), (spec(two, (256, 64), "d", "m"),)
        ),
        "embedding, batch": Program(
            jax.grad(lambda e, i: (e[i] ** 2).sum()), (on((1000, 64)), on((512,), "d", dtype=jnp.int32)), 3
        ),
        "embedding, rows": Program(jax.value_and_grad(lambda e, i: (e[i] ** 2).sum()), (on((8000, 64), "d"), labels)),
        "sorted": Program(lambda x: jnp.sort(jnp.sin(x), 0), (rows,), 0),
        "running sums": Program(lambda x: jnp.cumsum(x, 0), (rows,), 0),
        "convolution along space": Program(
            lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            (on((2, 64, 64, 8), None, "d"), on((3, 3, 8, 8))),
            0,
        ),
        "images": Program(stem, (on((2, 512, 64, 8), None, "d"), on((3, 3, 16, 16)), on((3, 3, 8, 16))), 2),
        "images on a grid": Program(
            stem, (spec(two, (2, 256, 128, 8), None, "m", "d"), spec(two, (3, 3, 16, 16)), spec(two, (3, 3, 8, 16)))
        ),
        "images, gradient": Program(
            jax.grad(classifier, (0, 1)),
            (on((2, 512, 64, 8), None, "d"), on((3, 3, 16, 16)), on((3, 3, 8, 16))),
            4,
        ),
        "images, batch": Program(
            jax.grad(classifier, (1, 2)), (on((32, 64, 32, 8), "d"), on((3, 3, 16, 16)), on((3, 3, 8, 16))), 4
        ),
        "pooled": Program(
            lambda x: jnp.sin(lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")),
            (on((2, 128, 16, 8), None, "d"),),
        ),
        "windows of three": Program(
            lambda x: jnp.sin(lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (1, 1), "SAME")), (rows,)
        ),
        "shifted windows": Program(
            lambda x: jnp.sin(lax.reduce_window(x, 1.0, lax.mul, (1, 1), (1, 1), ((-1, 1), (0, 0)))), (rows,)
        ),
        "turned up": Program(turned_up, (on((2, 64, 64, 8), None, "d"), on((3, 3, 8, 8)))),
        "groups of a batch": Program(
            lambda x, k: lax.conv_general_dilated(jnp.sin(x), k, (1,), "SAME", batch_group_count=16),
            (on((64, 4, 128), "d"), on((16, 4, 3))),
        ),
        "differences": Program(lambda x: x[1:] - x[:-1], (rows,), 3),
        "turned round": Program(lambda x: x[::-1] + jnp.roll(x, 1, 0), (rows,), 0),
        "joined and padded": Program(lambda x: jnp.pad(jnp.concatenate([x, 2 * x]), ((1, 7), (0, 0))), (rows,), 0),
        "branches": Program(
            lambda p, x: lax.cond(p > 0, jnp.sin, lambda x: 2 * x, x).sum(0), (on((), dtype=jnp.int32), rows), 0
        ),
        "moved between devices": Program(
            lambda x: lax.with_sharding_constraint(jnp.sin(x), NamedSharding(two, P("m", "d"))) * 2,
            (spec(two, (64, 64), "d", "m"),),
            0,
        ),
        "bfloat16": Program(
            jax.grad(layers), ([on((128, 128), dtype=jnp.bfloat16)] * 2, on((1024, 128), "d", dtype=jnp.bfloat16)), 0
        ),
    }
