"""Draws and likelihoods: Monte Carlo, posterior draws, initialisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, f32, f64, tiles, u32


def likelihood_of_all_draws(draws: Array, trials: Array, first: Array, second: Array, last: Array) -> Array:
    """The log likelihood of every trial for every draw, by a small network, and what a comparison of models needs.

    https://github.com/lnccbrown/HSSM/issues/247
    Reported: 24,000 trials, 1,000 draws, killed with 16 GB a core after the sampling was done. Cause: layers of 100
    numbers for each pair of draw and trial, 9.6 GB each. By hand: the likelihood apart, of fewer draws.
    """

    def one(draw: Array, trial: Array) -> Array:
        hidden = jnp.tanh(jnp.tanh(jnp.concatenate([draw, trial]) @ first) @ second)
        return hidden @ last

    logs = jax.vmap(lambda draw: jax.vmap(lambda trial: one(draw, trial))(trials))(draws)
    return jax.nn.logsumexp(logs, axis=0) - logs.var(0)


def _likelihood_by_hand(draws: Array, trials: Array, first: Array, second: Array, last: Array) -> Array:
    def some(part: Array) -> Array:
        def one(draw: Array, trial: Array) -> Array:
            return jnp.tanh(jnp.tanh(jnp.concatenate([draw, trial]) @ first) @ second) @ last

        logs = jax.vmap(lambda draw: jax.vmap(lambda trial: one(draw, trial))(part))(draws)
        return jax.nn.logsumexp(logs, axis=0) - logs.var(0)

    return lax.map(some, tiles(trials, 100)).reshape(-1)


def pointwise_likelihood_of_chains(weights: Array, scales: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Student-t log likelihoods of a regression for all chains, draws and observations, summed up.

    https://github.com/pymc-devs/pymc/issues/5656
    Reported: sampling is fine, out of memory where the likelihood follows; here 4 chains, 1,000 draws, 200,000
    observations. Cause: vmap of vmap forms all of it, 3.2 GB several times. By hand: a map in the place of one vmap.
    """
    means = jnp.einsum("cdk,nk->cdn", weights, x)
    residuals = (y - means) / jax.nn.softplus(scales)[..., None]
    logs = -2.5 * jnp.log1p(residuals**2 / 4) - jnp.log(jax.nn.softplus(scales))[..., None]
    return jax.nn.logsumexp(logs, axis=(0, 1)), logs.sum(-1)


def rates_of_coin_flips(key: Array, means: Array, trials: int) -> Array:
    """How often trials of each of many means succeed.

    https://github.com/jax-ml/jax/issues/17865
    Reported: 4,096 trials for each of 4 million means, 800 GB. Cause: random bits, uniform numbers and outcomes of all
    trials exist before they are averaged, 66 GB each. By hand: keys split, a scan over a few trials at a time.
    """
    flips = jax.random.bernoulli(key, jax.nn.sigmoid(means), (trials, means.shape[0]))
    return flips.mean(0)


def truncated_normal_weights(key: Array, rows: int, columns: int) -> Array:
    """A large parameter, drawn from a truncated normal and stored in bf16.

    https://github.com/jax-ml/jax/issues/19893
    Reported: 2 ** 31 numbers, a result of 4 GiB and 96 GiB on the way. Cause: counters, random bits and floats of all
    numbers, 8 to 16 GiB each. By hand: another generator, or the initialisation on many devices.
    """
    drawn = jax.random.truncated_normal(key, -2, 2, (rows, columns)) * (rows**-0.5 / 0.88)
    return drawn.astype(jnp.bfloat16)


def uniform_half_precision(key: Array, rows: int, columns: int) -> Array:
    """Uniform numbers in bf16.

    https://github.com/jax-ml/jax/issues/21045
    Reported: [524288, 4096], a result of 4 GB that takes 20. Cause: counters and random bits of twice the width, and a
    reshape that copies them. By hand: nothing; the maintainers looked at the compiler.
    """
    return jax.random.uniform(key, (rows, columns), dtype=jnp.bfloat16, minval=-1, maxval=1)


def pathfinder_draws(key: Array, means: Array, factors: Array, inverses: Array, draws: int) -> tuple[Array, Array]:
    """Draws along a path of Gaussian approximations, and how likely each is.

    https://github.com/pymc-devs/pymc-extras/issues/188
    Reported: f64[31, 200, 300, 300], 4.5 GB, of a model of moderate size. Cause: a product of matrix and outer product
    for each step and draw, before it is summed. By hand: settings of the allocator, which change nothing.
    """
    noise = jax.random.normal(key, (means.shape[0], draws, means.shape[1]), dtype=means.dtype)
    moved = jnp.einsum("lij,lmj->lmi", factors, noise)
    outer = moved[:, :, :, None] * moved[:, :, None]
    quadratic = (inverses[:, None] * jnp.tanh(outer)).sum((-1, -2))
    return means[:, None] + moved, -0.5 * quadratic


def forecast_quantiles(key: Array, level: Array, slope: Array, spread: Array, steps: int) -> Array:
    """Quantiles of predictions over draws of a posterior, for many series.

    https://github.com/juanitorduz/numpyro_forecast/issues/64
    Reported: 50,000 series, 1,000 draws; one allocation for all of them. Cause: draws x steps x series, 18 GB for 90
    steps, of normal numbers, predictions and their order. By hand: draws in chunks, moved to the host.
    """
    noise = jax.random.normal(key, (level.shape[0], steps, level.shape[1]))
    time = jnp.arange(steps, dtype=jnp.float32)[:, None]
    paths = level[:, None] + slope[:, None] * time + jax.nn.softplus(spread) * jnp.cumsum(noise, 1)
    ordered = jnp.sort(paths, axis=0)
    count = level.shape[0]
    return jnp.stack([ordered[count // 20], ordered[count // 2], ordered[count - 1 - count // 20]])


def hidden_states_over_time(x: Array, means: Array, transitions: Array) -> tuple[Array, Array]:
    """How often each state of a hidden Markov model follows each other, as the gradient of its likelihood.

    https://github.com/lindermanlab/ssm/issues/26
    Reported: 3,000,000 steps of 15 numbers take 140 GB; here 16 states. Cause: a transition matrix for each step, which
    are all the same, 3 GB, and one of expectations. By hand: a branch that keeps one matrix for all steps.
    """
    logs = -0.5 * ((x[:, None] - means) ** 2).sum(-1)

    def likelihood(matrices: Array) -> Array:
        def step(alpha: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
            seen, matrix = now
            return jax.nn.logsumexp(alpha[:, None] + matrix, axis=0) + seen, None

        return jax.nn.logsumexp(lax.scan(step, logs[0], (logs[1:], matrices))[0])

    shape = (x.shape[0] - 1, *transitions.shape)
    value, expected = jax.value_and_grad(likelihood)(jnp.broadcast_to(jax.nn.log_softmax(transitions), shape))
    return value, expected.sum(0)


def labels_of_a_mixture(x: Array, weights: Array, means: Array, factors: Array) -> tuple[Array, Array]:
    """The most likely component of a Gaussian mixture for each row, and how likely the row is.

    https://github.com/scikit-learn/scikit-learn/issues/7827
    Reported: 14 million rows of 8 columns need a huge amount of memory; here 10 components. Cause: rows x components x
    columns, 4.5 GB, whitened before they are squared and summed. By hand: row by row, where the result allows it.
    """
    white = jnp.einsum("nkd,kde->nke", x[:, None] - means, factors)
    volume = jnp.log(jnp.abs(jnp.diagonal(factors, axis1=1, axis2=2)) + 1e-6).sum(-1)
    logs = jax.nn.log_softmax(weights) + volume - 0.5 * (white**2).sum(-1)
    return logs.argmax(1), jax.nn.logsumexp(logs, axis=1)


def many_least_squares(x: Array, y: Array, first: Array, second: Array) -> Array:
    """Networks trained in parallel, whose last layer is a least-squares fit in the forward pass.

    https://github.com/jax-ml/jax/issues/7404
    Reported: 2,000 seeds, 5,000 rows; runs out where lstsq is in it. Cause: features of all networks, 1.3 GB, singular
    value decompositions of all of them and their derivatives. By hand: nothing; the thread asks why.
    """

    def loss(one: Array, two: Array) -> Array:
        features = jnp.tanh(x @ one) @ two
        found = jnp.linalg.lstsq(features, y)[0]
        return ((y - features @ found) ** 2).mean()

    return jax.vmap(loss)(first, second).sum()


ENTRIES = (
    Entry(
        likelihood_of_all_draws,
        (f32(1000, 6), f32(24_000, 2), f32(8, 100), f32(100, 100), f32(100)),
        (f32(30, 3), f32(100, 2), f32(5, 8), f32(8, 8), f32(8)),
        (f32(100, 6), f32(1000, 2), f32(8, 100), f32(100, 100), f32(100)),
        _likelihood_by_hand,
    ),
    Entry(
        pointwise_likelihood_of_chains,
        (f32(4, 1000, 10), f32(4, 1000), f32(200_000, 10), f32(200_000)),
        (f32(2, 20, 3), f32(2, 20), f32(800, 3), f32(800)),
        (f32(4, 100, 10), f32(4, 100), f32(20_000, 10), f32(20_000)),
    ),
    Entry(rates_of_coin_flips, (u32(2), f32(4_000_000), 4096), (u32(2), f32(500), 64), (u32(2), f32(20_000), 512)),
    Entry(truncated_normal_weights, (u32(2), 65_536, 32_768), (u32(2), 256, 128), (u32(2), 4096, 2048)),
    Entry(uniform_half_precision, (u32(2), 524_288, 4096), (u32(2), 256, 200), (u32(2), 4096, 2048)),
    Entry(
        pathfinder_draws,
        (u32(2), f64(31, 300), f64(31, 300, 300), f64(31, 300, 300), 200),
        (u32(2), f64(4, 20), f64(4, 20, 20), f64(4, 20, 20), 24),
        (u32(2), f64(20, 150), f64(20, 150, 150), f64(20, 150, 150), 150),
    ),
    Entry(
        forecast_quantiles,
        (u32(2), f32(1000, 50_000), f32(1000, 50_000), f32(50_000), 90),
        (u32(2), f32(40, 30), f32(40, 30), f32(30), 20),
        (u32(2), f32(200, 500), f32(200, 500), f32(500), 20),
    ),
    Entry(
        hidden_states_over_time,
        (f32(3_000_000, 15), f32(16, 15), f32(16, 16)),
        (f32(400, 3), f32(8, 3), f32(8, 8)),
        (f32(50_000, 15), f32(16, 15), f32(16, 16)),
    ),
    Entry(
        labels_of_a_mixture,
        (f32(14_000_000, 8), f32(10), f32(10, 8), f32(10, 8, 8)),
        (f32(1500, 3), f32(5), f32(5, 3), f32(5, 3, 3)),
        (f32(200_000, 8), f32(10), f32(10, 8), f32(10, 8, 8)),
    ),
    Entry(
        many_least_squares,
        (f32(5000, 1), f32(5000), f32(2000, 1, 32), f32(2000, 32, 4)),
        (f32(40, 1), f32(40), f32(60, 1, 8), f32(60, 8, 2)),
        (f32(1000, 1), f32(1000), f32(300, 1, 32), f32(300, 32, 4)),
        gradient=(2, 3),
    ),
)
