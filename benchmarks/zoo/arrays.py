"""Functions of jax.numpy, jax.lax and jax.scipy on large arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import linalg, ndimage, signal, special
from jax.scipy.stats import norm

from .programs import Array, Field, f32, i32, shape

FIELD = Field()


@FIELD.add(f32(8192, 8192))
def softmax_of_columns(x: Array) -> Array:
    """Softmax over the first dimension."""
    return jax.nn.softmax(x, axis=0)


@FIELD.add(f32(64, 512, 1024), f32(1024))
def log_softmax_then_weighted(x: Array, weights: Array) -> Array:
    """A weighted mean of log-probabilities."""
    return jnp.mean(jax.nn.log_softmax(x, axis=-1) * weights, axis=(1, 2))


@FIELD.add(f32(6000, 300), f32(5000, 300))
def logsumexp_of_products(a: Array, b: Array) -> Array:
    """A soft maximum over the inner products of two sets."""
    return special.logsumexp(a @ b.T / 0.1, axis=1)


@FIELD.add(f32(16384, 2048))
def centre_and_scale(x: Array) -> Array:
    """Columns of mean zero and variance one."""
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6)


@FIELD.add(f32(12, 200, 200), f32(200, 200, 40), f32(40, 64, 12))
def einsum_of_three(a: Array, b: Array, c: Array) -> Array:
    """Three tensors contracted in the order that jax chooses."""
    return jnp.einsum("iab,bcj,jki->ack", a, b, c)


@FIELD.add(f32(512, 512), f32(512, 512), f32(512, 512, 64))
def einsum_bilinear_form(a: Array, b: Array, tensor: Array) -> Array:
    """A bilinear form with a third-order tensor."""
    return jnp.einsum("ni,nj,ijk->nk", a, b, tensor)


@FIELD.add(f32(4000, 4000))
def cumsum_both_ways(x: Array) -> Array:
    """An integral image, squared."""
    return jnp.cumsum(jnp.cumsum(x, axis=0), axis=1) ** 2


@FIELD.add(f32(256, 65536))
def cumprod_and_cummax(x: Array) -> tuple[Array, Array]:
    """The drawdown of price paths."""
    prices = jnp.cumprod(1 + x, axis=1)
    peaks = lax.cummax(prices, axis=1)
    return jnp.min(prices / peaks, axis=1), prices[:, -1]


@FIELD.add(f32(2048, 16384))
def sort_rows(x: Array) -> Array:
    """Each row in order, then the distance to the neighbour."""
    return jnp.diff(jnp.sort(jnp.abs(x), axis=1), axis=1)


@FIELD.add(f32(1024, 20000), f32(1024, 20000))
def argsort_and_take(x: Array, y: Array) -> Array:
    """y in the order of x, as in a ranking loss."""
    order = jnp.argsort(-x, axis=1)
    return jnp.cumsum(jnp.take_along_axis(y, order, axis=1), axis=1)


@FIELD.add(f32(9, 1500, 1500, 3))
def median_of_images(x: Array) -> Array:
    """The background of a stack of images, taken off it."""
    return x - jnp.median(x, axis=0)


@FIELD.add(f32(3000, 4000))
def percentile_clip(x: Array) -> Array:
    """Each column within its 1st to 99th percentile."""
    low, high = jnp.percentile(x, jnp.array([1.0, 99.0]), axis=0)
    return jnp.clip(x, low, high)


@FIELD.add(i32(4_000_000), f32(4_000_000))
def unique_with_size(labels: Array, values: Array) -> tuple[Array, Array]:
    """The mean value of each label that occurs."""
    found, inverse = jnp.unique(labels, return_inverse=True, size=10_000)
    sums = jax.ops.segment_sum(values, inverse, num_segments=10_000)
    return found, sums


@FIELD.add(f32(10_000_000))
def histogram_of_values(x: Array) -> Array:
    """A normalised histogram of 256 bins."""
    counts, edges = jnp.histogram(jnp.tanh(x), bins=256, range=(-1.0, 1.0))
    return counts / jnp.diff(edges)


@FIELD.add(f32(1_000_000), f32(501))
def convolve_signal(x: Array, filter: Array) -> Array:
    """One filter over one long signal."""
    return jnp.convolve(x, filter, mode="same")


@FIELD.add(f32(2048, 2048), f32(31, 31))
def convolve_image_by_fft(image: Array, filter: Array) -> Array:
    """A blurred image by way of its spectrum."""
    return signal.fftconvolve(image, filter, mode="same")


@FIELD.add(f32(64, 65536))
def power_spectrum(x: Array) -> Array:
    """The mean spectrum of windowed signals."""
    window = jnp.hanning(x.shape[1])
    return jnp.mean(jnp.abs(jnp.fft.rfft(x * window, axis=1)) ** 2, axis=0)


@FIELD.add(f32(3_000_000), f32(5000), f32(5000))
def interpolate(x: Array, xs: Array, ys: Array) -> Array:
    """Piecewise linear interpolation at many points."""
    return jnp.interp(x, xs, ys) - jnp.interp(x + 0.01, xs, ys)


@FIELD.add(f32(5_000_000), f32(5_000_000), f32(5_000_000))
def black_scholes_greeks(spot: Array, strike: Array, time: Array) -> tuple[Array, Array]:
    """Prices and deltas of options."""

    def price(s: Array, k: Array, t: Array) -> Array:
        root = 0.2 * jnp.sqrt(t)
        upper = (jnp.log(s / k) + 0.03 * t) / root
        return s * norm.cdf(upper) - k * jnp.exp(-0.01 * t) * norm.cdf(upper - root)

    return price(spot, strike, time), jax.vmap(jax.grad(price))(spot, strike, time)


@FIELD.add(f32(3000, 2000), f32(2000))
def gamma_likelihood_gradient(x: Array, shapes: Array) -> tuple[Array, ...]:
    """The gradient of a likelihood with lgamma, xlogy and betainc in it."""

    def likelihood(x: Array, shapes: Array) -> Array:
        y = jnp.abs(x) + 0.1
        terms = special.xlogy(shapes - 1, y) - special.gammaln(shapes) - y
        return jnp.sum(terms + special.log_ndtr(x))

    found: tuple[Array, ...] = jax.grad(likelihood, argnums=(0, 1))(x, shapes)
    return found


@FIELD.add(f32(4000, 50), f32(3000, 50))
def city_block_distances(a: Array, b: Array) -> Array:
    """The nearest point in the sum of absolute differences."""
    return jnp.argmin(jnp.sum(jnp.abs(a[:, None] - b[None]), axis=-1), axis=1)


@FIELD.add(f32(6000, 40))
def cosine_distances(a: Array) -> Array:
    """The mean cosine distance of each point to those closer than a half."""
    unit = a / jnp.linalg.norm(a, axis=1, keepdims=True)
    distances = 1 - unit @ unit.T
    close = jnp.where(distances < 0.5, distances, 0.0)
    return close.sum(axis=1) / jnp.maximum((distances < 0.5).sum(axis=1), 1)


@FIELD.add(f32(2500, 12), f32(2500, 12))
def chebyshev_and_canberra(a: Array, b: Array) -> tuple[Array, Array]:
    """Two distances from the same differences."""
    difference = jnp.abs(a[:, None] - b[None])
    canberra = difference / (jnp.abs(a)[:, None] + jnp.abs(b)[None] + 1e-6)
    return difference.max(axis=-1).min(axis=1), canberra.sum(axis=-1).min(axis=1)


@FIELD.add(f32(5000, 5000))
def strict_triangle_products(x: Array) -> Array:
    """The product of the parts above and below the diagonal."""
    return jnp.triu(x, 1) @ jnp.tril(x, -1)


@FIELD.add(f32(3000, 6000), f32(3000, 1))
def searchsorted_rows(x: Array, probes: Array) -> Array:
    """Where a probe would stand in its row."""
    ordered = jnp.sort(x, axis=1)
    return jax.vmap(jnp.searchsorted)(ordered, probes)


@FIELD.add(f32(2000, 30000))
def top_k_then_mask(x: Array) -> Array:
    """All but the 64 largest entries of each row set to zero."""
    least = lax.top_k(jnp.abs(x), 64)[0][:, -1:]
    return jnp.where(jnp.abs(x) >= least, x, 0.0)


@FIELD.add(f32(1200, 1200))
def kronecker_product(x: Array) -> Array:
    """The largest entry of each row of a Kronecker product."""
    return jnp.max(jnp.kron(x, x[:30, :30]), axis=1)


@FIELD.add(f32(1000, 1000), f32(1000, 1000))
def matrix_exponential(a: Array, b: Array) -> Array:
    """A matrix exponential times a matrix."""
    found: Array = linalg.expm(a) @ b
    return found


@FIELD.add(f32(4096, 4096), i32(2_000_000), i32(2_000_000), f32(2_000_000))
def scatter_add_then_smooth(image: Array, rows: Array, columns: Array, values: Array) -> Array:
    """Points splatted onto an image that is blurred after."""
    image = image.at[rows, columns].add(values)
    return (image[2:, 1:-1] + image[:-2, 1:-1] + image[1:-1, 2:] + image[1:-1, :-2]) / 4


@FIELD.add(shape(jnp.uint8, 64_000_000))
def count_bits(x: Array) -> Array:
    """The number of bits set, by blocks of 64 bytes."""
    return lax.population_count(x).reshape(-1, 64).astype(jnp.int32).sum(axis=1)


@FIELD.add(f32(3000, 3000), f32(2, 4_000_000))
def map_coordinates(image: Array, places: Array) -> Array:
    """Bilinear samples of an image."""
    found: Array = ndimage.map_coordinates(image, [places[0], places[1]], order=1, mode="nearest")
    return found


@FIELD.add(f32(128, 128, 128, 16))
def pad_roll_and_stack(x: Array) -> Array:
    """The differences to six neighbours, in one tensor."""
    rolled = [jnp.roll(x, step, axis) - x for axis in range(3) for step in (1, -1)]
    return jnp.max(jnp.stack(rolled, axis=-1), axis=-1)
