"""Gradients through loops: layers, recurrences, solvers of differential equations."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, f32, i32

_Step = Callable[[Array, None], tuple[Array, None]]


def coupled_equations(start: Array, coupling: Array, drive: Array, steps: int) -> Array:
    """A grid of coupled equations, solved by Runge-Kutta steps and differentiated.

    https://github.com/patrick-kidger/diffrax/issues/685
    Reported: 256 x 256 equations, 1,000 steps. Cause: the gradient keeps every stage of every step, 1 GB for four of
    them and as much for what the field computes. By hand: fewer steps, checkpoints, reversible solvers.
    """

    return _coupled(start, coupling, drive, steps, lambda step: step)


def _coupled(
    start: Array, coupling: Array, drive: Array, steps: int, wrap: Callable[[_Step], _Step] = jax.checkpoint
) -> Array:
    def field(y: Array) -> Array:
        return jnp.tanh(y @ coupling) * drive - y + jnp.sin(y) * jnp.roll(y, 1, 0)

    def step(y: Array, _: None) -> tuple[Array, None]:
        a = field(y)
        b = field(y + 0.005 * a)
        c = field(y + 0.005 * b)
        return y + 0.01 / 6 * (a + 2 * b + 2 * c + field(y + 0.01 * c)), None

    return (lax.scan(wrap(step), start, None, length=steps)[0] ** 2).mean()


def many_states_over_time(start: Array, stiffness: Array, forces: Array) -> Array:
    """A simulation whose steps are differentiated, elementwise but for what neighbours do.

    https://github.com/jax-ml/jax/issues/27748
    Reported: ten buffers of [1000, 30000, 100], 117 GB. Cause: each value that a step computes is kept for each of
    1,000 steps. By hand: remat around the scan, which keeps two of them, 22 GB.
    """

    def step(state: tuple[Array, Array], force: Array) -> tuple[tuple[Array, Array], None]:
        place, speed = state
        stretch = jnp.roll(place, -1, 1) - place
        push = stiffness[:, None] * jnp.tanh(stretch) * jnp.exp(-(stretch**2)) + force
        speed = 0.99 * speed + 0.01 * (push - jnp.roll(push, 1, 1)) / jnp.sqrt(1 + speed**2)
        return (place + 0.01 * speed, speed), None

    place, speed = lax.scan(step, (start, jnp.zeros_like(start)), forces)[0]
    return (place**2).mean() + (speed**2).mean()


def stacked_layers(x: Array, ups: Array, downs: Array) -> Array:
    """A scan over the layers of a residual network, its weights trained.

    https://github.com/jax-ml/jax/issues/23869
    Reported: 32 layers of width 2,048, 64 sequences of 8,192. Cause: what each layer computes is kept, 4.3 GB three
    times a layer. By hand: remat with residuals moved to the host, which did not work in a scan.
    """

    def layer(x: Array, weights: tuple[Array, Array]) -> tuple[Array, None]:
        up, down = weights
        return x + jax.nn.gelu(x @ up) @ down, None

    return (lax.scan(layer, x, (ups, downs))[0] ** 2).mean()


def path_signature(path: Array) -> Array:
    """The signature of paths to depth four, by Chen's identity step by step, differentiated.

    https://github.com/anh-tong/signax/issues/62
    Reported: long sequences within large models; here 128 paths of 1,000 steps and 16 channels. Cause: the gradient
    keeps the third level of every prefix, 2.1 GB. By hand: checkpoints were asked for.
    """

    def outer(tensor: Array, d: Array) -> Array:
        return tensor[..., None] * d

    def step(levels: tuple[Array, ...], d: Array) -> tuple[tuple[Array, ...], None]:
        one, two, three, four = levels
        four = four + outer(three + outer(two + outer(one + d / 4, d / 3), d / 2), d)
        three = three + outer(two + outer(one + d / 3, d / 2), d)
        return (one + d, two + outer(one + d / 2, d), three, four), None

    def one_path(points: Array) -> Array:
        size = points.shape[1]
        start = tuple(jnp.zeros((size,) * depth) for depth in range(1, 5))
        levels = lax.scan(step, start, jnp.diff(points, axis=0))[0]
        return sum((level**2).sum() for level in levels)

    return jax.vmap(one_path)(path).mean()


def _states(x: Array, rates: Array, decay: Array, inward: Array) -> tuple[Array, Array]:
    return jnp.exp(-rates[..., None] * jnp.exp(decay)), (rates * x)[..., None] * inward[:, :, None]


def selective_states(x: Array, rates: Array, decay: Array, inward: Array, outward: Array) -> Array:
    """A selective state space layer, one step after the other, differentiated.

    https://github.com/patrick-kidger/equinox/pull/656
    Reported: a block for long sequences; here 4 of 2,048 positions, 1,536 channels, 16 states. Cause: factors and
    inputs of every position, channel and state exist before the scan, 0.8 GB each, as does every state for the
    gradient. By hand: kernels that compute them inside, or a parallel scan, which takes more.
    """
    factors, inputs = _states(jnp.tanh(x), jax.nn.softplus(rates), decay, inward)

    def step(state: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        factor, given, out = now
        state = factor * state + given
        return state, jnp.einsum("bdn,bn->bd", state, out)

    first, second, third = (jnp.moveaxis(each, 1, 0) for each in (factors, inputs, outward))
    return (lax.scan(step, jnp.zeros_like(factors[:, 0]), (first, second, third))[1] ** 2).mean()


def states_by_parallel_scan(x: Array, rates: Array, decay: Array, inward: Array, outward: Array) -> Array:
    """The same layer by an associative scan, differentiated.

    https://github.com/radarFudan/mamba-minimal-jax/issues/1
    Reported: faster, with some additional memory in the backward pass. Cause: each level of the scan writes tensors of
    all positions, channels and states, and the gradient keeps them. By hand: the thread compares scans.
    """
    factors, inputs = _states(jnp.tanh(x), jax.nn.softplus(rates), decay, inward)

    def join(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    states = lax.associative_scan(join, (factors, inputs), axis=1)[1]
    return (jnp.einsum("bldn,bln->bld", states, outward) ** 2).mean()


def private_recurrent_gradients(
    table: Array, weights: Array, inner: Array, last: Array, tokens: Array, labels: Array
) -> tuple[Array, ...]:
    """Gradients of each review by all weights of a recurrent classifier, clipped, then summed.

    https://github.com/meta-pytorch/opacus/issues/53
    Reported: 10,004 words of 100 numbers, 100 reviews: 95 GB where the plain gradient fits in 4; here 400 reviews, for
    JAX takes less. Cause: a gradient of the word table, 4 MB, for each review, and the states of each. By hand: nothing
    but smaller batches.
    """

    def loss(parameters: tuple[Array, ...], words: Array, label: Array) -> Array:
        table, weights, inner, last = parameters

        def step(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
            h, c = state
            i, f, g, o = jnp.split(x @ weights + h @ inner, 4)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros(inner.shape[0])
        seen = lax.scan(step, (zeros, zeros), table[words])[1].mean(0) @ last
        return jax.nn.logsumexp(seen) - seen[label % last.shape[1]]

    parameters = (table, weights, inner, last)
    each = jax.vmap(jax.grad(loss), (None, 0, 0))(parameters, tokens, labels)
    squares = sum((g**2).reshape(len(tokens), -1).sum(1) for g in each)
    scale = jnp.minimum(1, 1 / jnp.sqrt(squares + 1e-12))
    return tuple(jnp.tensordot(scale, g, 1) for g in each)


_LONG = (f32(4, 2048, 1536), f32(4, 2048, 1536), f32(1536, 16), f32(4, 2048, 16), f32(4, 2048, 16))
_SHORT = (f32(2, 12, 96), f32(2, 12, 96), f32(96, 8), f32(2, 12, 8), f32(2, 12, 8))
_MIDDLE = (f32(2, 512, 384), f32(2, 512, 384), f32(384, 16), f32(2, 512, 16), f32(2, 512, 16))

ENTRIES = (
    Entry(
        coupled_equations,
        (f32(256, 256), f32(256, 256), f32(256), 1000),
        (f32(24, 24), f32(24, 24), f32(24), 40),
        (f32(128, 128), f32(128, 128), f32(128), 100),
        _coupled,
        gradient=(1, 2),
    ),
    Entry(
        many_states_over_time,
        (f32(30_000, 100), f32(30_000), f32(1000)),
        (f32(20, 20), f32(20), f32(60)),
        (f32(2000, 50), f32(2000), f32(100)),
        gradient=(0, 1),
    ),
    Entry(
        stacked_layers,
        (f32(64, 8192, 2048), f32(32, 2048, 2048), f32(32, 2048, 2048)),
        (f32(8, 48, 32), f32(6, 32, 32), f32(6, 32, 32)),
        (f32(8, 512, 128), f32(8, 128, 128), f32(8, 128, 128)),
        gradient=(1, 2),
    ),
    Entry(path_signature, (f32(128, 1000, 16),), (f32(6, 20, 6),), (f32(64, 150, 8),), gradient=(0,)),
    Entry(selective_states, _LONG, _SHORT, _MIDDLE, gradient=(0, 1, 2, 3, 4)),
    Entry(states_by_parallel_scan, _LONG, _SHORT, _MIDDLE, gradient=(0, 1, 2, 3, 4)),
    Entry(
        private_recurrent_gradients,
        (f32(10_004, 100), f32(100, 400), f32(100, 400), f32(100, 2), i32(400, 256), i32(400)),
        (f32(400, 8), f32(8, 32), f32(8, 32), f32(8, 2), i32(24, 10), i32(24)),
        (f32(2000, 64), f32(64, 256), f32(64, 256), f32(64, 2), i32(256, 60), i32(256)),
    ),
)
