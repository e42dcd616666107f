"""Particles, quantum states, transforms, decoding: what simulates step by step or by pairs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, f32, f64, i32, tiles


def _shifted(places: Array, side: float) -> Array:
    difference = places[:, None] - places[None]
    return jnp.mod(difference + side / 2, side) - side / 2


def repelling_nodes(places: Array) -> Array:
    """The forces of soft spheres on each other in a periodic box, as the gradient of an energy of all pairs.

    https://github.com/jax-md/jax-md/issues/137
    Reported: 40,000 nodes of a graph fill a V100. Cause: displacements of all pairs, 12.8 GB, distances and energies,
    because the function was called without a list of neighbours. By hand: the list.
    """
    squares = (_shifted(places, 50.0) ** 2).sum(-1)
    apart = jnp.sqrt(jnp.where(squares > 0, squares, 1e6))
    return 0.25 * jnp.where(apart < 1, (1 - apart) ** 2, 0).sum()


def _repelling_nodes_by_hand(places: Array) -> Array:
    @jax.checkpoint
    def some(rows: Array) -> Array:
        difference = jnp.mod(rows[:, None] - places[None] + 25.0, 50.0) - 25.0
        squares = (difference**2).sum(-1)
        apart = jnp.sqrt(jnp.where(squares > 0, squares, 1e6))
        return jnp.where(apart < 1, (1 - apart) ** 2, 0).sum()

    return 0.25 * lax.map(some, tiles(places, 500)).sum()


def neighbour_list(places: Array, capacity: int) -> tuple[Array, Array]:
    """Numbers of the atoms within a radius of each, first come first kept, and how many there are.

    https://github.com/jax-md/jax-md/issues/290
    Reported: 37,266 atoms of a protein in water. Cause: candidates of all pairs, 5.6 GB of integers and 33 GB of
    displacements in f64, sorted row by row. By hand: lists from another library, on the host.
    """
    size = places.shape[0]
    near = (_shifted(places, 9.6) ** 2).sum(-1) < 1.0
    near = near & ~jnp.eye(size, dtype=bool)
    numbers = jnp.where(near, jnp.arange(size)[None], size)
    return jnp.sort(numbers, axis=1)[:, :capacity], near.sum(1)


def local_energies(spins: Array, flips: Array, elements: Array, visible: Array, weights: Array) -> Array:
    """Local energies of a Hamiltonian on a neural quantum state: the network at every connected configuration.

    https://github.com/netket/netket/issues/711
    Reported: a terabyte asked for, by a moderate model. Cause: the network runs on samples x connected configurations
    at once; here 8,192 samples, 200 connections of 100 sites and 400 hidden units, 2.6 GB. By hand: chunks.
    """

    def log_psi(s: Array) -> Array:
        return s @ visible + jnp.log(jnp.cosh(s @ weights)).sum(-1)

    connected = spins[:, None] * (1 - 2 * flips[None])
    return (elements * jnp.exp(log_psi(connected) - log_psi(spins)[:, None])).sum(1)


def _local_energies_by_hand(spins: Array, flips: Array, elements: Array, visible: Array, weights: Array) -> Array:
    def some(rows: tuple[Array, Array]) -> Array:
        return local_energies(rows[0], flips, rows[1], visible, weights)

    return lax.map(some, (tiles(spins, 128), tiles(elements, 128))).reshape(-1)


def quantum_natural_gradient(spins: Array, local: Array, visible: Array, first: Array, second: Array) -> Array:
    """Stochastic reconfiguration: per-sample gradients of a state, their covariance and a solve.

    https://github.com/netket/netket/issues/2033
    Reported: memory that grows with the number of samples on a square lattice; here 16,384 samples, 8,200 weights, f64.
    Cause: the gradient of each sample, 1.1 GB, and its centred copy. By hand: chunks of samples, fewer of them.
    """

    def log_psi(weights: tuple[Array, Array, Array], s: Array) -> Array:
        hidden = jnp.tanh(s @ weights[1])
        return s @ weights[0] + jnp.log(jnp.cosh(hidden @ weights[2])).sum()

    each = jax.vmap(jax.grad(log_psi), (None, 0))((visible, first, second), spins)
    rows = jnp.concatenate([g.reshape(spins.shape[0], -1) for g in each], 1)
    rows = (rows - rows.mean(0)) / spins.shape[0] ** 0.5
    force = rows.T @ (local - local.mean()) / spins.shape[0] ** 0.5

    def step(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        found, residual, direction = state
        moved = rows.T @ (rows @ direction) + 0.1 * direction
        length = (residual**2).sum() / (direction * moved).sum()
        rest = residual - length * moved
        return found + length * direction, rest, rest + (rest**2).sum() / (residual**2).sum() * direction

    return lax.fori_loop(0, 10, step, (jnp.zeros_like(force), force, force))[0]


def dense_solution(times: Array, values: Array, slopes: Array, where: Array) -> Array:
    """A solution of an equation between its steps, at many times.

    https://github.com/patrick-kidger/diffrax/issues/250
    Reported: a billion times, 16 TB. Cause: coefficients of the step that a time falls into, gathered for all times
    before the polynomial is evaluated. By hand: an older version, which gathered less.
    """
    number = jnp.clip(jnp.searchsorted(times, where) - 1, 0, times.shape[0] - 2)
    width = (times[1:] - times[:-1])[number]
    part = ((where - times[number]) / (width + 1e-6))[:, None]
    left, right = values[number], values[number + 1]
    a = slopes[number] * width[:, None] - (right - left)
    b = (right - left) - slopes[number + 1] * width[:, None]
    return (1 - part) * left + part * right + part * (1 - part) * ((1 - part) * a + part * b)


def covariance_contraction(angles: Array, t1: Array, t2: Array) -> Array:
    """A product of four-index tensors, one for each angle, contracted to a number.

    https://github.com/jax-ml/jax/issues/1923
    Reported: 800,000 angles, a JAX vmap in one go. Cause: a tensor of 6 ** 4 for each angle, 8.3 GB in f64, and as many
    for what it is made of. By hand: lax.map over 800 groups of a thousand.
    """

    def one(angle: Array) -> Array:
        phases = angle * jnp.arange(1, 7, dtype=angle.dtype)
        c, s = jnp.cos(phases), jnp.sin(phases)
        four = jnp.einsum("i,j,k,l->ijkl", c, s, c, s) + jnp.exp(-jnp.abs(jnp.einsum("i,j,k,l->ijkl", s, c, s, c)))
        return jnp.einsum("ijkl,ij,kl->", jnp.tanh(four), t1, t2)

    return jax.vmap(one)(angles)


def deconvolved_volume(volume: Array, kernel: Array, steps: int) -> Array:
    """Richardson-Lucy deconvolution by three-dimensional transforms.

    https://github.com/hammerlab/flowdec/issues/26
    Reported: stacks of 512 x 512 x 348, padded to [512, 1024, 1024] complex, 4.3 GB each. Cause: every step transforms
    the whole volume there and back, twice. By hand: no padding, or tiles of the image that overlap.
    """
    moved = jnp.fft.rfftn(kernel)

    def blurred(x: Array, transform: Array) -> Array:
        return jnp.fft.irfftn(jnp.fft.rfftn(x) * transform, x.shape)

    def step(_: Array, now: Array) -> Array:
        ratio = volume / (jnp.abs(blurred(now, moved)) + 1e-3)
        return now * jnp.abs(blurred(ratio, jnp.conj(moved)))

    return lax.fori_loop(0, steps, step, jnp.full_like(volume, 0.5))


def image_from_frequencies(points: Array, target: Array, first: Array, second: Array, last: Array, side: int) -> Array:
    """A network at every voxel of a volume, compared with measurements after a Fourier transform, trained.

    https://github.com/tancik/fourier-feature-networks/issues/2
    Reported: the batch is all voxels, because the transform needs them; here 96 cubed. Cause: 0.9 GB for each layer and
    its gradient. By hand: a lower resolution.
    """
    x = jax.nn.relu(jax.nn.relu(points @ first) @ second) @ last
    seen = jnp.fft.fftn(x.reshape(side, side, side))
    return (jnp.abs(seen - target) ** 2).mean() / side**3


def power_of_long_series(series: Array) -> Array:
    """The mean power spectrum of several long series.

    https://github.com/jax-ml/jax/issues/9591
    Reported: transforms of more than 2 GB in f64 end the process; here 10 series of 100 million, the size of another
    thread on it. Cause: all transforms at once, 8 GB, and what the library needs. By hand: a scan over the series.
    """
    return (jnp.abs(jnp.fft.rfft(series, axis=1)) ** 2).mean(0)


def filters_of_all_neurons(counts: Array, filters: Array, readout: Array) -> Array:
    """Spike counts of many neurons convolved with each of a few filters, then read out to a rate.

    https://github.com/flatironinstitute/nemos/issues/345
    Reported: 200 neurons, 8 filters, 500,000 samples; 3.2 GB. Cause: nested vmaps of a convolution over neurons and
    filters, transposed to features. By hand: batches of neurons, of filters and of samples, which the library then got.
    """

    def one(channel: Array, kernel: Array) -> Array:
        return jnp.convolve(channel, kernel, mode="same")

    features = jax.vmap(jax.vmap(one, (None, 0)), (1, None))(counts, filters)
    return jnp.tanh(features.reshape(-1, counts.shape[0]).T @ readout)


def beam_search(table: Array, mixers: Array, prompts: Array, steps: int, beams: int) -> tuple[Array, Array]:
    """Decoding with several beams and a cache of keys and values that follows the beams that survive.

    https://github.com/huggingface/transformers/issues/22639
    Reported: the number of beams multiplies the memory of a batch. Cause: caches of steps x batch x beams, 2.1 GB here
    (256 prompts, 8 beams, 256 steps, width 512), reordered after every step. By hand: beams in smaller parts was asked.
    """
    batch, width, words = prompts.shape[0], table.shape[1], table.shape[0]

    def step(number: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        tokens, scores, keys, values, written = state
        x = table[tokens]
        keys = keys.at[:, :, number].set(x @ mixers[0])
        values = values.at[:, :, number].set(x @ mixers[1])
        weights = jnp.einsum("bkd,bktd->bkt", x @ mixers[2], keys) / width**0.5
        weights = jax.nn.softmax(jnp.where(jnp.arange(steps) <= number, weights, -1e9))
        x = x + jnp.einsum("bkt,bktd->bkd", weights, values)
        logs = scores[..., None] + jax.nn.log_softmax(x @ table.T)
        scores, picked = lax.top_k(logs.reshape(batch, -1), beams)
        parent, tokens = picked // words, picked % words
        keys, values = (jnp.take_along_axis(each, parent[:, :, None, None], 1) for each in (keys, values))
        written = jnp.take_along_axis(written, parent[:, :, None], 1).at[:, :, number].set(tokens)
        return tokens, scores, keys, values, written

    start = jnp.broadcast_to(jnp.abs(prompts[:, None]) % words, (batch, beams))
    first = jnp.where(jnp.arange(beams) == 0, 0.0, -1e9) + jnp.zeros((batch, 1))
    cache = jnp.zeros((batch, beams, steps, width))
    written = jnp.zeros((batch, beams, steps), jnp.int32)
    state = lax.fori_loop(0, steps, step, (start, first, cache, cache, written))
    return state[1], state[4]


ENTRIES = (
    Entry(repelling_nodes, (f32(40_000, 2),), (f32(200, 2),), (f32(3000, 2),), _repelling_nodes_by_hand, gradient=(0,)),
    Entry(neighbour_list, (f64(37_266, 3), 256), (f64(200, 3), 20), (f64(3000, 3), 64)),
    Entry(
        local_energies,
        (f32(8192, 100), f32(200, 100), f32(8192, 200), f32(100), f32(100, 400)),
        (f32(256, 8), f32(16, 8), f32(256, 16), f32(8), f32(8, 32)),
        (f32(2048, 64), f32(100, 64), f32(2048, 100), f32(64), f32(64, 128)),
        _local_energies_by_hand,
    ),
    Entry(
        quantum_natural_gradient,
        (f64(16_384, 100), f64(16_384), f64(100), f64(100, 40), f64(40, 102)),
        (f64(150, 8), f64(150), f64(8), f64(8, 8), f64(8, 8)),
        (f64(4096, 36), f64(4096), f64(36), f64(36, 36), f64(36, 36)),
    ),
    Entry(
        dense_solution,
        (f32(1400), f32(1400, 2), f32(1400, 2), f32(1_000_000_000)),
        (f32(20), f32(20, 2), f32(20, 2), f32(40_000)),
        (f32(1400), f32(1400, 2), f32(1400, 2), f32(5_000_000)),
    ),
    Entry(
        covariance_contraction,
        (f64(800_000), f64(6, 6), f64(6, 6)),
        (f64(100), f64(6, 6), f64(6, 6)),
        (f64(8000), f64(6, 6), f64(6, 6)),
    ),
    Entry(
        deconvolved_volume,
        (f32(512, 1024, 1024), f32(512, 1024, 1024), 25),
        (f32(16, 32, 32), f32(16, 32, 32), 3),
        (f32(64, 128, 128), f32(64, 128, 128), 5),
    ),
    Entry(
        image_from_frequencies,
        (f32(96**3, 256), f32(96, 96, 96), f32(256, 256), f32(256, 256), f32(256), 96),
        (f32(12**3, 8), f32(12, 12, 12), f32(8, 16), f32(16, 16), f32(16), 12),
        (f32(40**3, 64), f32(40, 40, 40), f32(64, 128), f32(128, 128), f32(128), 40),
        gradient=(2, 3, 4),
    ),
    Entry(power_of_long_series, (f64(10, 100_000_000),), (f64(6, 4000),), (f64(10, 400_000),)),
    Entry(
        filters_of_all_neurons,
        (f32(500_000, 200), f32(8, 100), f32(1600, 20)),
        (f32(1500, 12), f32(4, 11), f32(48, 3)),
        (f32(100_000, 40), f32(6, 100), f32(240, 10)),
    ),
    Entry(
        beam_search,
        (f32(32_000, 512), f32(3, 512, 512), i32(256), 256, 8),
        (f32(50, 16), f32(3, 16, 16), i32(24), 24, 4),
        (f32(4000, 128), f32(3, 128, 128), i32(32), 40, 4),
    ),
)
