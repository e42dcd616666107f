"""Kernel matrices: Gaussian processes, two-sample tests, densities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from .entry import Array, Entry, f32, f64, tiles


def _squares(x: Array, y: Array) -> Array:
    return jnp.maximum((x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T, 0)


def predictive_variance(x: Array, inducing: Array, inverse: Array) -> Array:
    """The variance of a Gaussian process at many points: the diagonal of a product of three matrices.

    https://github.com/secondmind-labs/trieste/issues/524
    Reported: 50,000 points and 5 observations, f64. Cause: all of the 50,000 x 50,000 product is made, 20 GB, and its
    diagonal taken. By hand: batches of points, later the sum of an elementwise product.
    """
    distance = jnp.sqrt(5 * _squares(x, inducing) + 1e-12)
    cross = (1 + distance + distance**2 / 3) * jnp.exp(-distance)
    return 1 - jnp.diag(cross @ inverse @ cross.T)


def _predictive_variance_by_hand(x: Array, inducing: Array, inverse: Array) -> Array:
    distance = jnp.sqrt(5 * _squares(x, inducing) + 1e-12)
    cross = (1 + distance + distance**2 / 3) * jnp.exp(-distance)
    return 1 - ((cross @ inverse) * cross).sum(1)


def sparse_process_bound(x: Array, y: Array, inducing: Array, scales: Array) -> Array:
    """The collapsed bound of a sparse Gaussian process.

    https://github.com/GPflow/GPflow/issues/489
    Reported: 819,621 observations of 9 dimensions, 50 inducing points, f64; shape [50, 819621] in the gradient. Cause:
    the kernel between inducing points and data, its triangular solve and their gradients, 0.33 GB each. By hand:
    stochastic variational inference, which is another model.
    """
    scaled, points = x / scales, inducing / scales
    size = inducing.shape[0]
    lower = jnp.linalg.cholesky(jnp.exp(-0.5 * _squares(points, points)) + 1e-4 * jnp.eye(size))
    noise = 0.01
    a = solve_triangular(lower, jnp.exp(-0.5 * _squares(points, scaled)), lower=True) / noise**0.5
    factor = jnp.linalg.cholesky(a @ a.T + jnp.eye(size))
    c = solve_triangular(factor, a @ y, lower=True) / noise**0.5
    trace = -0.5 * (x.shape[0] / noise - (a**2).sum())
    return 0.5 * (c**2).sum() - jnp.log(jnp.diag(factor)).sum() + trace - 0.5 * (y**2).sum() / noise


def exact_process(x: Array, y: Array, scales: Array) -> Array:
    """The log marginal likelihood of exact Gaussian process regression.

    https://github.com/SheffieldML/GPy/issues/436
    Reported: 10,000 samples of 5 dimensions take 5 GB and kill the machine. Cause: the kernel matrix of 0.8 GB (f64),
    its copies and its factor. By hand: half of the samples. The limit here is 2.2 kernel matrices.
    """
    matrix = jnp.exp(-0.5 * _squares(x / scales, x / scales)) + 0.1 * jnp.eye(x.shape[0])
    lower = jnp.linalg.cholesky(matrix)
    solved = solve_triangular(lower, y, lower=True)
    return -0.5 * (solved**2).sum() - jnp.log(jnp.diag(lower)).sum()


def exact_process_training(x: Array, y: Array, scales: Array) -> Array:
    """The same likelihood, with its gradient by the length scales.

    https://github.com/SheffieldML/GPy/issues/203
    Reported: 50,000 instances of one dimension, a MemoryError with 32 GB. Cause: the kernel matrix of 20 GB (f64), the
    factor, its inverse and the gradient of each. By hand: sparse models. The limit here is 3.2 kernel matrices.
    """
    return exact_process(x, y, scales)


def kernel_derivatives(x: Array, y: Array, scales: Array) -> Array:
    """The gradient of a likelihood by way of the derivative of the kernel matrix by each of its parameters.

    https://github.com/dfm/george/issues/50
    Reported: 4,000 samples of 9 dimensions, a MemoryError where the derivatives of the kernel are made. Cause: nine
    matrices of 128 MB (f64), a stack, before each is contracted to a number. By hand: fewer samples.
    """

    def matrix(scales: Array) -> Array:
        r = jnp.sqrt(5 * _squares(x / scales, x / scales) + 1e-12)
        return (1 + r + r**2 / 3) * jnp.exp(-r) + 0.1 * jnp.eye(x.shape[0])

    factor = jax.scipy.linalg.cho_factor(matrix(scales), lower=True)
    alpha = jax.scipy.linalg.cho_solve(factor, y)
    inverse = jax.scipy.linalg.cho_solve(factor, jnp.eye(x.shape[0]))
    derivatives = jax.jacfwd(matrix)(scales)
    return 0.5 * jnp.einsum("ijp,ij->p", derivatives, jnp.outer(alpha, alpha) - inverse)


def deep_kernel_solve(features: Array, y: Array, steps: int) -> Array:
    """Conjugate gradients for the weights of a kernel regression.

    https://github.com/maka89/Deep-Kernel-GP/issues/1
    Reported: 187,630 samples of 14 columns, 64 GB of memory. Cause: the kernel matrix, 141 GB (f32). By hand: a couple
    of thousand samples; others run the product with the matrix row by row, in each step.
    """

    def product(v: Array) -> Array:
        return jnp.exp(-0.5 * _squares(features, features)) @ v + 0.5 * v

    return _conjugate_gradients(product, y, steps)


def _deep_kernel_solve_by_hand(features: Array, y: Array, steps: int) -> Array:
    rows = tiles(features, 1000)

    def product(v: Array) -> Array:
        return lax.map(lambda x: jnp.exp(-0.5 * _squares(x, features)) @ v, rows).reshape(-1) + 0.5 * v

    return _conjugate_gradients(product, y, steps)


def _conjugate_gradients(product: Array, y: Array, steps: int) -> Array:
    def step(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        found, residual, direction = state
        moved, square = product(direction), (residual**2).sum()
        length = square / (direction * moved).sum()
        rest = residual - length * moved
        return found + length * direction, rest, rest + (rest**2).sum() / square * direction

    return lax.fori_loop(0, steps, step, (jnp.zeros_like(y), y, y))[0]


def weighted_products_of_kernels(x: Array, active: Array, y: Array) -> Array:
    """Quadratic forms of product kernels, one for each choice of active dimensions.

    https://github.com/jax-ml/jax/issues/21377
    Reported: 30 choices, 1,000 points of 30 dimensions, f64: choices x points x points x dimensions, 7 GB. Cause:
    nested vmaps of a product over dimensions; here with its gradient. By hand: a map in the place of the outer vmap.
    """

    def form(which: Array, right: Array) -> Array:
        matrix = jnp.prod(1 + which * jnp.exp(-((x[:, None] - x[None]) ** 2)), axis=-1)
        return right @ matrix @ right

    return jax.vmap(form)(active, y).sum()


def _weighted_products_by_hand(x: Array, active: Array, y: Array) -> Array:
    @jax.checkpoint
    def form(pair: tuple[Array, Array]) -> Array:
        which, right = pair
        row = jax.checkpoint(lambda one: jnp.prod(1 + which * jnp.exp(-((one - x) ** 2)), axis=-1) @ right)
        return right @ lax.map(row, x)

    return lax.map(form, (active, y)).sum()


def two_samples_mean_bandwidth(x: Array, y: Array) -> Array:
    """Maximum mean discrepancy with five bandwidths around the mean distance.

    https://github.com/jindongwang/transferlearning/issues/358
    Reported: 7,207 and 93,070 rows of 79 columns, 64 GB of memory. Cause: all pairs of all rows, 100,277 squared, 40 GB
    in f32 and more for each bandwidth; the first width needs the mean of them all. By hand: batches, another result.
    """
    everything = jnp.concatenate([x, y])
    distances = _squares(everything, everything)
    width = distances.sum() / (len(everything) * (len(everything) - 1.0)) / 4
    kernel = sum(jnp.exp(-distances / (width * 2.0**power)) for power in range(5))
    sign = jnp.concatenate([jnp.full(len(x), 1 / len(x)), jnp.full(len(y), -1 / len(y))]).astype(x.dtype)
    return sign @ kernel @ sign


def two_samples_median_bandwidth(x: Array, y: Array) -> Array:
    """Maximum mean discrepancy whose bandwidth is the median of all squared distances.

    https://github.com/SeldonIO/alibi-detect/issues/597
    Reported: 20,000 rows of reference and 20,000 of test. Cause: the distances of all pairs, 6.4 GB, sorted for their
    median, then the kernel. By hand: KeOps, or 10,000 rows.
    """
    everything = jnp.concatenate([x, y])
    distances = _squares(everything, everything)
    kernel = jnp.exp(-distances / (2 * jnp.sort(distances.reshape(-1))[distances.size // 2]))
    first = jnp.arange(len(everything)) < len(x)
    sign = jnp.where(first, 1 / len(x), -1 / len(y)).astype(x.dtype)
    return sign @ kernel @ sign


def density_on_a_sphere(grid: Array, centres: Array, sharpness: Array) -> Array:
    """The log density of a mixture of von Mises-Fisher distributions on a grid.

    https://github.com/williamjameshandley/spherical_kde/issues/3
    Reported: a grid of 300 x 300 and 5,000 samples take more than 8 GB. Cause: grid x samples in f64, 3.6 GB each time,
    before the logsumexp. By hand: a loop over batches of the grid.
    """
    logs = sharpness * (grid @ centres.T) + jnp.log(sharpness / (4 * jnp.pi * jnp.sinh(sharpness)))
    return jax.nn.logsumexp(logs, axis=1) - jnp.log(centres.shape[0])


ENTRIES = (
    Entry(
        predictive_variance,
        (f64(50_000, 1), f64(5, 1), f64(5, 5)),
        (f64(200, 1), f64(5, 1), f64(5, 5)),
        (f64(8000, 1), f64(5, 1), f64(5, 5)),
        _predictive_variance_by_hand,
    ),
    Entry(
        sparse_process_bound,
        (f64(819_621, 9), f64(819_621), f64(50, 9), f64(9)),
        (f64(2000, 3), f64(2000), f64(10, 3), f64(3)),
        (f64(60_000, 9), f64(60_000), f64(50, 9), f64(9)),
        gradient=(2, 3),
    ),
    Entry(
        exact_process,
        (f64(10_000, 5), f64(10_000), f64(5)),
        (f64(120, 5), f64(120), f64(5)),
        (f64(1500, 5), f64(1500), f64(5)),
        limit=1_760_000_000,
    ),
    Entry(
        exact_process_training,
        (f64(50_000, 1), f64(50_000), f64(1)),
        (f64(120, 1), f64(120), f64(1)),
        (f64(1000, 1), f64(1000), f64(1)),
        gradient=(2,),
        limit=64_000_000_000,
    ),
    Entry(
        kernel_derivatives,
        (f64(4000, 9), f64(4000), f64(9)),
        (f64(100, 3), f64(100), f64(3)),
        (f64(800, 9), f64(800), f64(9)),
    ),
    Entry(
        deep_kernel_solve,
        (f32(187_630, 14), f32(187_630), 20),
        (f32(200, 3), f32(200), 3),
        (f32(6000, 14), f32(6000), 10),
        _deep_kernel_solve_by_hand,
    ),
    Entry(
        weighted_products_of_kernels,
        (f64(1000, 30), f64(30, 30), f64(30, 1000)),
        (f64(40, 4), f64(3, 4), f64(3, 40)),
        (f64(300, 10), f64(10, 10), f64(10, 300)),
        _weighted_products_by_hand,
        gradient=(0,),
    ),
    Entry(
        two_samples_mean_bandwidth,
        (f32(7207, 79), f32(93_070, 79)),
        (f32(50, 8), f32(150, 8)),
        (f32(500, 79), f32(3500, 79)),
    ),
    Entry(
        two_samples_median_bandwidth,
        (f32(20_000, 32), f32(20_000, 32)),
        (f32(100, 8), f32(100, 8)),
        (f32(500, 32), f32(500, 32)),
    ),
    Entry(
        density_on_a_sphere,
        (f64(90_000, 3), f64(5000, 3), f64()),
        (f64(200, 3), f64(100, 3), f64()),
        (f64(20_000, 3), f64(2000, 3), f64()),
    ),
)
