"""Loops over steps, differentiated: recurrent networks, solvers, layers, filters, and the like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = Any


@dataclass(frozen=True, slots=True)
class Scan:
    """A loss whose gradient is taken by all inexact arguments.

    arguments: builds them for a size: 1 runs at once, 16 has stacks of megabytes. temp: the most temporary memory of
    the gradient after the pass, as a part of what it was before. exact: whether StableHLO's
    interpreter can run it, by which its bits must be the same.
    """

    name: str
    loss: Callable[..., Array]
    arguments: Callable[[int], tuple[Any, ...]]
    temp: float
    exact: bool = True


def _array(*shape: int, seed: int = 0, scale: float = 0.5, dtype: Any = jnp.float32) -> Array:
    return (scale * jax.random.normal(jax.random.PRNGKey(seed + sum(shape)), shape)).astype(dtype)


def _recurrent(size: int) -> tuple[Array, ...]:
    width = 8 * size
    return _array(width, width, scale=0.3 / size**0.5), _array(4, width), _array(12, 4, width, seed=1)


def rnn(w: Array, start: Array, inputs: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        return jnp.tanh(h @ w + x), None

    h, _ = lax.scan(step, start, inputs)
    return (h**2).sum()


def rnn_reversed(w: Array, start: Array, inputs: Array) -> Array:
    h, _ = lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), start, inputs, reverse=True)
    return (h**2).sum()


def rnn_with_outputs(w: Array, start: Array, inputs: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        h = jnp.sin(h @ w + x) * jnp.exp(-0.1 * x)
        return h, h

    h, ys = lax.scan(step, start, inputs)
    return (h**2).sum() + jnp.sin(ys).sum()


def rnn_last_output(w: Array, start: Array, inputs: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        h = jnp.sin(h @ w + x)
        return h, jnp.cos(h) * x

    _, ys = lax.scan(step, start, inputs)
    return (ys[-1] ** 2).sum()


def rnn_unrolled(w: Array, start: Array, inputs: Array) -> Array:
    h, _ = lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), start, inputs, unroll=2)
    return (h**2).sum()


def rnn_checkpointed(w: Array, start: Array, inputs: Array) -> Array:
    step = jax.checkpoint(lambda h, x: (jnp.tanh(jnp.sin(h @ w) + x), None))
    h, _ = lax.scan(step, start, inputs)
    return (h**2).sum()


def lstm(w: Array, start: Array, inputs: Array) -> Array:
    weights = jnp.concatenate([w, jnp.sin(w), 0.5 * w, w.T], 1)

    def step(state: Any, x: Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(h @ weights + jnp.tile(x, 4), 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    (h, _), _ = lax.scan(step, (start, jnp.zeros_like(start)), inputs)
    return (h**2).sum()


def gru(w: Array, start: Array, inputs: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        z, r = jax.nn.sigmoid(h @ w + x), jax.nn.sigmoid(h @ w.T - x)
        n = jnp.tanh((r * h) @ w + 0.5 * x)
        return (1 - z) * n + z * h, None

    return (lax.scan(step, start, inputs)[0] ** 2).sum()


def sum_of_residuals(y: Array, zs: Array) -> Array:
    def step(total: Array, z: Array) -> Any:
        return total + jnp.sin(y + z).sum(), None

    return lax.scan(step, 0.0, zs)[0]


def runge_kutta(w: Array, start: Array, _: Array) -> Array:
    def flow(x: Array) -> Array:
        return jnp.tanh(x @ w) @ w.T

    def step(x: Array, _: Any) -> Any:
        a = flow(x)
        b = flow(x + 0.05 * a)
        c = flow(x + 0.05 * b)
        d = flow(x + 0.1 * c)
        return x + 0.1 / 6 * (a + 2 * b + 2 * c + d), None

    return (lax.scan(step, start, None, length=20)[0] ** 2).sum()


def _layers(size: int, dtype: Any = jnp.float32) -> tuple[Array, ...]:
    width = 8 * size
    scale = 0.5 / width**0.5
    return (
        _array(3, width, 3 * width, scale=scale, dtype=dtype),
        _array(3, width, 4 * width, scale=scale, dtype=dtype),
        _array(3, 4 * width, width, scale=scale, dtype=dtype),
        _array(2, 8 * size, width, dtype=dtype),
    )


def _attention(x: Array, w: Array) -> Array:
    q, k, v = jnp.split(x @ w, 3, axis=-1)
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones(scores.shape[1:], bool))
    return jax.nn.softmax(jnp.where(mask, scores, -1e9).astype(jnp.float32), -1).astype(x.dtype) @ v


def _norm(x: Array) -> Array:
    wide = x.astype(jnp.float32)
    return ((wide - wide.mean(-1, keepdims=True)) * lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def transformer(w: Array, up: Array, down: Array, x: Array) -> Array:
    def layer(x: Array, weights: Any) -> Any:
        attend, grow, shrink = weights
        x = x + _attention(_norm(x), attend)
        return x + jax.nn.gelu(_norm(x) @ grow) @ shrink, None

    return (lax.scan(layer, x, (w, up, down))[0].astype(jnp.float32) ** 2).mean()


def transformer_with_dropout(w: Array, up: Array, down: Array, x: Array) -> Array:
    def layer(carried: Any, weights: Any) -> Any:
        x, key = carried
        attend, grow, shrink = weights
        key, first, second = jax.random.split(key, 3)
        drop = _attention(_norm(x), attend)
        x = x + jnp.where(jax.random.bernoulli(first, 0.9, drop.shape), drop / 0.9, 0)
        hidden = jax.nn.gelu(_norm(x) @ grow)
        hidden = jnp.where(jax.random.bernoulli(second, 0.9, hidden.shape), hidden / 0.9, 0)
        return (x + hidden @ shrink, key), None

    (x, _), _ = lax.scan(layer, (x, jax.random.PRNGKey(3)), (w, up, down))
    return (x**2).mean()


def sinkhorn(points: Array, others: Array) -> Array:
    cost = ((points[:, None] - others[None]) ** 2).sum(-1)

    def step(potentials: Any, _: Any) -> Any:
        f, g = potentials
        f = -jax.nn.logsumexp((g[None] - cost) / 0.5, axis=1)
        g = -jax.nn.logsumexp((f[:, None] - cost) / 0.5, axis=0)
        return (f, g), None

    (f, g), _ = lax.scan(step, (jnp.zeros(len(points)), jnp.zeros(len(others))), None, length=10)
    return f.mean() + g.mean()


def nested(w: Array, start: Array, inputs: Array) -> Array:
    def outer(h: Array, x: Array) -> Any:
        return lax.scan(lambda h, _: (jnp.tanh(h @ w + x), None), h, None, length=5)[0], None

    return (lax.scan(outer, start, inputs)[0] ** 2).sum()


def nested_long(w: Array, start: Array, inputs: Array) -> Array:
    """Each inner loop stacks more than the threshold for the gradient of its own steps."""

    def outer(h: Array, x: Array) -> Any:
        steps = jnp.linspace(0.5, 1, 160)
        return lax.scan(lambda h, t: (jnp.tanh(h @ w + t * x), None), h, steps)[0], None

    return (lax.scan(outer, start, inputs)[0] ** 2).sum()


def mapped(w: Array, _: Array, inputs: Array) -> Array:
    return lax.map(lambda x: (jnp.exp(jnp.sin(x @ w)) ** 2).sum(), inputs).sum()


def fori(w: Array, start: Array, inputs: Array) -> Array:
    def step(i: Array, h: Array) -> Array:
        return jnp.sin(h @ w + inputs[i]) * jnp.cos(i * 0.1)

    return (lax.fori_loop(0, inputs.shape[0], step, start) ** 2).sum()


def pytree(w: Array, start: Array, inputs: Array) -> Array:
    def step(state: Any, x: Array) -> Any:
        moved = jnp.sin(state["x"] @ w + x)
        return {"x": moved, "norm": state["norm"] + moved.sum(), "count": state["count"] + 1}, None

    state = {"x": start, "norm": jnp.float32(0), "count": jnp.int32(0)}
    state, _ = lax.scan(step, state, inputs)
    return state["norm"] ** 2 + (state["x"] ** 2).sum() * state["count"]


def cumulative_product(_: Array, start: Array, inputs: Array) -> Array:
    def step(p: Array, x: Array) -> Any:
        p = p * (1 + 0.1 * jnp.sin(x))
        return p, jnp.exp(p)

    return lax.scan(step, start, inputs)[1].sum()


def alignment(w: Array, start: Array, inputs: Array) -> Array:
    """The recursion of connectionist temporal classification, in logarithms."""
    probabilities = jax.nn.log_softmax(inputs)

    def step(alpha: Array, x: Array) -> Any:
        before = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=-1e5)[:, :-1]
        twice = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=-1e5)[:, :-2]
        return jnp.logaddexp(jnp.logaddexp(alpha, before), twice) + x, None

    return lax.scan(step, start, probabilities)[0].sum() + 0 * w.sum()


def hidden_markov(w: Array, start: Array, inputs: Array) -> Array:
    moves = jax.nn.log_softmax(w, axis=1)

    def step(alpha: Array, x: Array) -> Any:
        return jax.nn.logsumexp(alpha[:, :, None] + moves[None], axis=1) + x, None

    return jax.nn.logsumexp(lax.scan(step, start, inputs)[0], axis=1).sum()


def kalman(w: Array, start: Array, inputs: Array) -> Array:
    n = w.shape[0]
    observe, noise = jnp.eye(n)[:4], 0.1 * jnp.eye(4)

    def step(state: Any, x: Array) -> Any:
        mean, cov = state
        mean, cov = w @ mean, w @ cov @ w.T + 0.01 * jnp.eye(n)
        s = observe @ cov @ observe.T + noise
        factor = jnp.linalg.cholesky(s)
        gain = jax.scipy.linalg.cho_solve((factor, True), observe @ cov).T
        error = x[:4, 0] - observe @ mean
        likelihood = -0.5 * error @ jnp.linalg.solve(s, error) - jnp.log(jnp.diagonal(factor)).sum()
        return (mean + gain @ error, cov - gain @ observe @ cov), likelihood

    _, likelihoods = lax.scan(step, (start[0], jnp.eye(n)), inputs)
    return likelihoods.sum()


def heat(_: Array, start: Array, inputs: Array) -> Array:
    def step(u: Array, force: Array) -> Any:
        laplacian = jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 2 * u
        return u + 0.1 * laplacian * jnp.tanh(u) + 0.01 * force - 0.01 * u**3, None

    return (lax.scan(step, start, inputs)[0] ** 2).sum()


def attention_over_past(w: Array, start: Array, inputs: Array) -> Array:
    def step(state: Any, x: Array) -> Any:
        h, memory, i = state
        weights = jax.nn.softmax(jnp.einsum("bd,tbd->tb", h, memory), axis=0)
        h = jnp.tanh(h @ w + x + jnp.einsum("tb,tbd->bd", weights, memory))
        return (h, lax.dynamic_update_slice(memory, h[None], (i, 0, 0)), i + 1), None

    state = (start, jnp.zeros((inputs.shape[0], *start.shape)), 0)
    return (lax.scan(step, state, inputs)[0][0] ** 2).sum()


def branching(w: Array, start: Array, inputs: Array) -> Array:
    def step(state: Any, x: Array) -> Any:
        h, i = state
        h = lax.cond(i % 2 == 0, lambda h: jnp.sin(h @ w) + x, lambda h: jnp.cos(h) * x, h)
        return (jnp.exp(jnp.sin(h)) * 0.5, i + 1), None

    return (lax.scan(step, (start, 0), inputs)[0][0] ** 2).sum()


def maxima(w: Array, start: Array, inputs: Array) -> Array:
    """Asks which elements equal their maximum."""

    def step(h: Array, x: Array) -> Any:
        scores = jnp.sin(h[:, :, None] * w[None])
        return jnp.tanh(scores.max(1) + jnp.exp(scores).sum(1) * 0.01 + x), None

    return (lax.scan(step, start, inputs)[0] ** 2).sum()


def dropout(w: Array, start: Array, inputs: Array) -> Array:
    def step(state: Any, x: Array) -> Any:
        h, key = state
        key, sub = jax.random.split(key)
        kept = jax.random.bernoulli(sub, 0.8, h.shape)
        return (jnp.where(kept, jnp.tanh(h @ w + x) / 0.8, 0.0), key), None

    return (lax.scan(step, (start, jax.random.PRNGKey(1)), inputs)[0][0] ** 2).sum()


def two_readers(w: Array, start: Array, inputs: Array) -> Array:
    """A scan's outputs are read by two others, in one of them from the end."""

    def first(h: Array, x: Array) -> Any:
        h = jnp.sin(h @ w + x)
        return h, jnp.exp(h) * x

    _, ys = lax.scan(first, start, inputs)
    forward, _ = lax.scan(lambda s, y: (jnp.tanh(s + y), None), start, ys)
    backward, _ = lax.scan(lambda s, y: (jnp.cos(s * y), None), start, ys, reverse=True)
    return (forward * backward).sum()


def newton(w: Array, start: Array, inputs: Array) -> Array:
    """Steps from the carry alone, with a division, a square root and powers."""

    def step(x: Array, a: Array) -> Any:
        return x - (x**3 - jnp.sqrt(1 + a**2)) / (3 * x**2 + 1), None

    return (lax.scan(step, start, inputs)[0] ** 2).sum() + 0 * w.sum()


def stacked_convolutions(size: int) -> tuple[Array, ...]:
    return _array(4, 3, 3, 4, 4, scale=0.2), _array(2, 8 * size, 8, 4)


def convolutions(weights: Array, image: Array) -> Array:
    def layer(x: Array, w: Array) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return x + jnp.maximum(y, 0) * jax.nn.sigmoid(y), None

    return (lax.scan(layer, image, weights)[0] ** 2).sum()


def _points(size: int) -> tuple[Array, ...]:
    return _array(8 * size, 3), _array(9 * size, 3, seed=1)


def _narrow(size: int) -> tuple[Array, ...]:
    return _layers(size, jnp.bfloat16)


def _two(size: int) -> tuple[Array, ...]:
    return _array(8 * size, 8 * size), _array(12, 8 * size, 8 * size, seed=1)


SCANS = [
    Scan("rnn", rnn, _recurrent, 0.47),
    Scan("rnn_reversed", rnn_reversed, _recurrent, 0.47),
    Scan("rnn_with_outputs", rnn_with_outputs, _recurrent, 0.46),
    Scan("rnn_last_output", rnn_last_output, _recurrent, 0.45),
    Scan("rnn_unrolled", rnn_unrolled, _recurrent, 0.36),
    Scan("rnn_checkpointed", rnn_checkpointed, _recurrent, 1),
    Scan("lstm", lstm, _recurrent, 0.34),
    Scan("gru", gru, _recurrent, 0.24),
    Scan("sum_of_residuals", sum_of_residuals, _two, 0.05),
    Scan("runge_kutta", runge_kutta, _recurrent, 0.17),
    Scan("transformer", transformer, _layers, 0.33),
    Scan("transformer_with_dropout", transformer_with_dropout, _layers, 0.44),
    Scan("transformer_bf16", transformer, _narrow, 0.35, exact=False),
    Scan("sinkhorn", sinkhorn, _points, 0.31),
    Scan("nested", nested, _recurrent, 0.2),
    Scan("nested_long", nested_long, _recurrent, 0.02),
    Scan("mapped", mapped, _recurrent, 0.13),
    Scan("fori", fori, _recurrent, 0.66),
    Scan("pytree", pytree, _recurrent, 0.65),
    Scan("cumulative_product", cumulative_product, _recurrent, 0.57),
    Scan("alignment", alignment, _recurrent, 0.55),
    Scan("hidden_markov", hidden_markov, _recurrent, 0.23),
    Scan("kalman", kalman, _recurrent, 0.35, exact=False),
    Scan("heat", heat, _recurrent, 0.3),
    Scan("attention_over_past", attention_over_past, _recurrent, 0.88),
    Scan("branching", branching, _recurrent, 0.33),
    Scan("maxima", maxima, _recurrent, 0.08),
    Scan("dropout", dropout, _recurrent, 0.58),
    Scan("two_readers", two_readers, _recurrent, 0.58),
    Scan("newton", newton, _recurrent, 0.19),
    Scan("convolutions", convolutions, stacked_convolutions, 0.46),
]


def _long(length: int) -> Callable[[int], tuple[Array, ...]]:
    return lambda size: (*_recurrent(size)[:2], _array(length, 4, 8 * size, seed=1))


def chained(w: Array, start: Array, inputs: Array) -> Array:
    """A loop reads forwards, and twice in a step, what another stacks."""

    def first(h: Array, x: Array) -> Any:
        h = jnp.sin(h @ w + x)
        return h, (jnp.exp(h) * x, h)

    def second(s: Array, ys: Any) -> Any:
        return jnp.tanh(s + ys[0] * ys[1]), None

    return lax.scan(second, start, lax.scan(first, start, inputs)[1])[0]


# Of 64 steps, which leave no rest, and of 67, which do.
LONG = [
    Scan(f"{loss.__name__}_{length}", loss, _long(length), 0.5)
    for loss in (rnn, rnn_reversed, rnn_checkpointed, lstm, dropout, fori)
    for length in (64, 67)
]


def export_chained(length: int) -> tuple[str, tuple[Array, ...]]:
    """`chained`, not differentiated, and its arguments."""
    arguments = _long(length)(1)
    return str(jax.jit(chained).lower(*arguments).as_text()), arguments


def export_gradient(scan: Scan, size: int) -> str:
    """The gradient of the scan's loss as StableHLO text."""
    arguments = scan.arguments(size)
    gradient = jax.grad(scan.loss, tuple(range(len(arguments))))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
    return str(jax.jit(gradient, keep_unused=True).lower(*shapes).as_text())
