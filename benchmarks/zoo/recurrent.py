"""Loops over time: scans and their gradients, recurrent cells, state spaces, integrators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.ode import odeint

from .programs import KEY, Array, Field, Tree, f32, i32, sgd

FIELD = Field()


def lstm_cell(weights: Array, state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
    """One step of an LSTM; weights are (inputs + width + 1, 4 width)."""
    h, c = state
    gates = jnp.concatenate([x, h, jnp.ones_like(h[:, :1])], axis=1) @ weights
    i, f, g, o = jnp.split(gates, 4, axis=1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


@FIELD.add((f32(577, 2048), f32(512, 100)), f32(200, 64, 64), i32(200, 64))
def lstm_step(parameters: Tree, x: Array, labels: Array) -> Tree:
    """A training step of an LSTM that labels each time."""

    def loss(parameters: Tree, x: Array, labels: Array) -> Array:
        weights, head = parameters
        start = (jnp.zeros((64, 512)), jnp.zeros((64, 512)))
        hidden = lax.scan(lambda s, x: lstm_cell(weights, s, x), start, x)[1]
        logs = jax.nn.log_softmax(hidden @ head)
        return -jnp.take_along_axis(logs, labels[..., None], axis=-1).mean()

    return sgd(loss)(parameters, x, labels)


@FIELD.add((f32(128, 768), f32(256, 768), f32(256, 1)), f32(500, 32, 128))
def gru_both_ways_gradient(parameters: Tree, x: Array) -> Tree:
    """The gradient of a gated unit that reads forwards and backwards."""

    def loss(parameters: Tree, x: Array) -> Array:
        into, over, head = parameters

        def cell(h: Array, x: Array) -> tuple[Array, Array]:
            xr, xz, xn = jnp.split(x @ into, 3, axis=1)
            hr, hz, hn = jnp.split(h @ over, 3, axis=1)
            z = jax.nn.sigmoid(xz + hz)
            h = (1 - z) * jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn) + z * h
            return h, h

        start = jnp.zeros((32, 256))
        forwards = lax.scan(cell, start, x)[1]
        backwards = lax.scan(cell, start, x, reverse=True)[1]
        return jnp.tanh((forwards + backwards) @ head).mean()

    return jax.grad(loss)(parameters, x)


@FIELD.add(f32(4, 2048, 256, 16), f32(4, 2048, 256, 16))
def linear_recurrence_associative(decay: Array, x: Array) -> Array:
    """A diagonal linear recurrence by an associative scan, summed over its states."""

    def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] * b[0], a[1] * b[0] + b[1]

    return lax.associative_scan(join, (jax.nn.sigmoid(decay), x), axis=1)[1].sum(-1)


@FIELD.add(f32(2, 1024, 128, 16), f32(2, 1024, 128, 16))
def linear_recurrence_gradient(decay: Array, x: Array) -> tuple[Array, Array]:
    """The gradient of an associative scan."""

    def loss(decay: Array, x: Array) -> Array:
        def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
            return a[0] * b[0], a[1] * b[0] + b[1]

        return (lax.associative_scan(join, (jnp.exp(-jnp.abs(decay)), x), axis=1)[1] ** 2).mean()

    return jax.grad(loss, argnums=(0, 1))(decay, x)


@FIELD.add(f32(8, 4096, 512), f32(8, 4096, 512), f32(8, 4096, 16), f32(8, 4096, 16), f32(512, 16))
def selective_state_space(x: Array, step: Array, b: Array, c: Array, a: Array) -> Array:
    """A selective state space by a scan over time."""

    def body(state: Array, each: tuple[Array, ...]) -> tuple[Array, Array]:
        x, step, b, c = each
        step = jax.nn.softplus(step)[..., None]
        state = jnp.exp(-step * jnp.exp(a)) * state + step * x[..., None] * b[:, None]
        return state, (state * c[:, None]).sum(-1)

    moved = tuple(jnp.moveaxis(each, 1, 0) for each in (x, step, b, c))
    return jnp.moveaxis(lax.scan(body, jnp.zeros((8, 512, 16)), moved)[1], 0, 1)


@FIELD.add(f32(2000, 100000), f32(2000, 100000))
def two_scans_each_summed(a: Array, b: Array) -> Array:
    """Two exponential averages, each summed at its end."""

    def smooth(x: Array, rate: float) -> Array:
        def body(state: Array, row: Array) -> tuple[Array, Array]:
            state = rate * state + (1 - rate) * row
            return state, state

        return lax.scan(body, jnp.zeros(100000), x)[1].sum()

    return smooth(a, 0.9) + smooth(b, 0.5)


@FIELD.add(f32(1000, 20000), f32(20000))
def four_scans_gradient(x: Array, start: Array) -> Array:
    """The gradient of four scans over the same rows with other cells."""

    def loss(start: Array) -> Array:
        total = jnp.float32(0)
        for function in (jnp.tanh, jnp.sin, jax.nn.softplus, jax.nn.sigmoid):

            def body(state: Array, row: Array, function: object = function) -> tuple[Array, Array]:
                state = function(state * 0.9 + row)  # type: ignore[operator]
                return state, state

            total += (lax.scan(body, start, x)[1] ** 2).sum()
        return total

    return jax.grad(loss)(start)


@FIELD.add(f32(256, 4096), f32(4096, 256))
def scan_with_residuals_gradient(x: Array, weights: Array) -> Array:
    """100 layers that share weights, and their gradient."""

    def loss(weights: Array) -> Array:
        def body(x: Array, _: None) -> tuple[Array, None]:
            return x + 0.1 * jnp.tanh(jax.nn.gelu(x @ weights) @ weights.T), None

        return (lax.scan(body, x, None, length=100)[0] ** 2).mean()

    return jax.grad(loss)(weights)


@FIELD.add(f32(256, 4096), f32(4096, 256))
def scan_of_scans_remat_gradient(x: Array, weights: Array) -> Array:
    """The same in ten by ten layers, of which ten are kept at a time."""

    def loss(weights: Array) -> Array:
        def body(x: Array, _: None) -> tuple[Array, None]:
            return x + 0.1 * jnp.tanh(jax.nn.gelu(x @ weights) @ weights.T), None

        @jax.checkpoint
        def ten(x: Array, _: None) -> tuple[Array, None]:
            return lax.scan(body, x, None, length=10)

        return (lax.scan(ten, x, None, length=10)[0] ** 2).mean()

    return jax.grad(loss)(weights)


@FIELD.add(f32(50, 300, 4000), f32(4000))
def nested_scans(x: Array, start: Array) -> Array:
    """A scan over sequences in a scan over batches, all states kept."""

    def outer(state: Array, rows: Array) -> tuple[Array, Array]:
        def inner(state: Array, row: Array) -> tuple[Array, Array]:
            state = jnp.maximum(state * 0.99, row)
            return state, state

        state, states = lax.scan(inner, state, rows)
        return state.mean() * jnp.ones_like(state), states - states.mean(0)

    return lax.scan(outer, start, x)[1].max((0, 1))


@FIELD.add(f32(2000, 500), f32(500, 500), f32(500))
def hidden_markov_forward_backward(emissions: Array, transitions: Array, start: Array) -> Array:
    """The expected transitions of a hidden Markov model, by the gradient of its likelihood."""

    def likelihood(transitions: Array) -> Array:
        logs = jax.nn.log_softmax(transitions)

        def body(alpha: Array, row: Array) -> tuple[Array, None]:
            return jax.nn.logsumexp(alpha[:, None] + logs, axis=0) + row, None

        return jax.nn.logsumexp(lax.scan(body, start, emissions)[0])

    return jax.grad(likelihood)(transitions)


@FIELD.add(f32(500, 64, 32), f32(32, 32), f32(32, 32), f32(32, 32))
def kalman_filter(observed: Array, move: Array, noise: Array, seen: Array) -> tuple[Array, Array]:
    """The means and covariances of 64 series."""

    def body(state: tuple[Array, Array], y: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        mean, covariance = state
        mean = mean @ move.T
        covariance = move @ covariance @ move.T + noise @ noise.T
        gain = jnp.linalg.solve(covariance + seen @ seen.T + jnp.eye(32), covariance).swapaxes(-1, -2)
        mean = mean + jnp.einsum("bij,bj->bi", gain, y - mean)
        covariance = covariance - gain @ covariance
        return (mean, covariance), (mean, covariance)

    start = (jnp.zeros((64, 32)), jnp.broadcast_to(jnp.eye(32), (64, 32, 32)))
    return lax.scan(body, start, observed)[1]


@FIELD.add((f32(64, 512), f32(512, 512), f32(512, 64)), f32(4096, 64))
def neural_ode_adjoint(parameters: Tree, x: Array) -> Tree:
    """The gradient through an adaptive integrator by its adjoint."""

    def slope(x: Array, time: Array, parameters: Tree) -> Array:
        one, two, three = parameters
        return jnp.tanh(jnp.tanh(x @ one + time) @ two) @ three

    def loss(parameters: Tree) -> Array:
        return (odeint(slope, x, jnp.array([0.0, 1.0]), parameters)[-1] ** 2).mean()

    return jax.grad(loss)(parameters)


@FIELD.add(f32(200000, 6))
def runge_kutta_trajectory(start: Array) -> Array:
    """200 steps of the fourth order for many oscillators, the last ones averaged."""

    def slope(x: Array) -> Array:
        place, speed = jnp.split(x, 2, axis=1)
        return jnp.concatenate([speed, -jnp.sin(place) - 0.1 * speed], axis=1)

    def body(x: Array, _: None) -> tuple[Array, Array]:
        one = slope(x)
        two = slope(x + 0.005 * one)
        three = slope(x + 0.005 * two)
        four = slope(x + 0.01 * three)
        x = x + 0.01 / 6 * (one + 2 * two + 2 * three + four)
        return x, x[:, 0]

    return lax.scan(body, start, None, length=200)[1][-100:].mean(0)


@FIELD.add(f32(100000), KEY)
def geometric_brownian_paths(start: Array, key: Array) -> tuple[Array, Array]:
    """An Asian option's price over simulated paths, and its delta."""

    def price(start: Array) -> Array:
        noise = jax.random.normal(key, (250, 100000))
        logs = jnp.cumsum(-0.0001 + 0.01 * noise, axis=0)
        return jnp.maximum((start * jnp.exp(logs)).mean(0) - 1.0, 0).mean()

    return jax.value_and_grad(price)(start)


@FIELD.add(f32(3000, 3000))
def while_until_converged(x: Array) -> Array:
    """Newton's iteration for a matrix sign."""

    def go_on(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 1e-4) & (state[2] < 50)

    def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, count = state
        new = 1.5 * x - 0.5 * x @ (x @ x)
        return new, jnp.abs(new - x).max(), count + 1

    return lax.while_loop(go_on, body, (x / jnp.linalg.norm(x), jnp.float32(1), 0))[0]


@FIELD.add(f32(100, 2000, 200), f32(200))
def map_over_batches(x: Array, y: Array) -> Array:
    """A function of each batch in turn by lax.map, with a square matrix inside."""

    def each(rows: Array) -> Array:
        similar = jax.nn.softmax(rows @ rows.T / 14, axis=-1)
        return (similar @ rows).mean(0) * y

    return lax.map(each, x)


@FIELD.add(f32(400, 400, 3), f32(400, 400), i32())
def dynamic_time_warping(costs: Array, weights: Array, which: Array) -> Array:
    """The gradient of a soft alignment, row by row with a scan in a scan."""

    def align(costs: Array) -> Array:
        def row(before: Array, cost: Array) -> tuple[Array, Array]:
            def column(left: Array, each: tuple[Array, Array, Array]) -> tuple[Array, Array]:
                up, corner, cost = each
                here = cost - jax.nn.logsumexp(-jnp.stack([left, up, corner]))
                return here, here

            corner = jnp.concatenate([jnp.full((1,), 1e6), before[:-1]])
            new = lax.scan(column, jnp.float32(1e6), (before, corner, cost))[1]
            return new, new

        return lax.scan(row, jnp.arange(400.0), costs)[1][-1, -1]

    return jax.grad(lambda c: jax.vmap(align, in_axes=2)(c * weights[..., None])[which])(costs)
