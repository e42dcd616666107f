"""Kernel methods, Gaussian processes, clustering and optimal transport."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import linalg

from .programs import Array, Field, Tree, adam, adam_state, f32, i32, sgd

FIELD = Field()


def square_distances(a: Array, b: Array) -> Array:
    """(n, d) and (m, d) to (n, m)."""
    return (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T


def gaussian(a: Array, b: Array, scale: Array | float = 1.0) -> Array:
    """The Gaussian kernel matrix."""
    return jnp.exp(-0.5 * jnp.maximum(square_distances(a / scale, b / scale), 0))


def matern(a: Array, b: Array) -> Array:
    """The Matern kernel matrix of smoothness 5/2."""
    root = jnp.sqrt(5 * jnp.maximum(square_distances(a, b), 1e-12))
    return (1 + root + root**2 / 3) * jnp.exp(-root)


@FIELD.add(f32(20000, 8), f32(20000, 8), f32(20000, 2))
def matern_times_matrix(a: Array, b: Array, v: Array) -> Array:
    """A product with a Matern kernel matrix."""
    return matern(a, b) @ v


@FIELD.add(f32(8000, 6), f32(8000), f32(6))
def gp_likelihood_gradient(x: Array, y: Array, scales: Array) -> Array:
    """The gradient of a Gaussian process's marginal likelihood in its length scales."""

    def likelihood(scales: Array) -> Array:
        covariance = gaussian(x, x, scales) + 0.01 * jnp.eye(len(x))
        factor = jnp.linalg.cholesky(covariance)
        solved = linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * solved @ solved + jnp.log(jnp.diagonal(factor)).sum()

    return jax.grad(likelihood)(scales)


@FIELD.add(f32(4000, 3), f32(4000), f32(10000, 3))
def gp_posterior(x: Array, y: Array, at: Array) -> tuple[Array, Array]:
    """The posterior mean and variance at new points."""
    factor = linalg.cho_factor(matern(x, x) + 0.1 * jnp.eye(len(x)), lower=True)
    across = matern(at, x)
    mean = across @ linalg.cho_solve(factor, y)
    half = linalg.solve_triangular(factor[0], across.T, lower=True)
    return mean, 1 - (half**2).sum(0)


@FIELD.add((f32(500, 10), f32(500), f32(500, 500)), f32(20000, 10), f32(20000))
def svgp_step(parameters: Tree, x: Array, y: Array) -> Tree:
    """A step on the bound of a sparse variational Gaussian process."""

    def bound(parameters: Tree, x: Array, y: Array) -> Array:
        inducing, mean, root = parameters
        factor = jnp.linalg.cholesky(gaussian(inducing, inducing) + 1e-4 * jnp.eye(500))
        across = linalg.solve_triangular(factor, gaussian(inducing, x), lower=True)
        lower = jnp.tril(root)
        variance = 1 - (across**2).sum(0) + ((lower.T @ across) ** 2).sum(0)
        likelihood = (0.5 * (y - mean @ across) ** 2 + 0.5 * variance).sum()
        divergence = 0.5 * ((lower**2).sum() + mean @ mean - 2 * jnp.log(jnp.abs(jnp.diagonal(lower))).sum())
        return likelihood + divergence

    return sgd(bound)(parameters, x, y)


@FIELD.add(f32(10000, 20), f32(7000, 20))
def maximum_mean_discrepancy_gradient(a: Array, b: Array) -> Array:
    """The gradient of the discrepancy with a sum of three kernels."""

    def discrepancy(a: Array) -> Array:
        def mean(u: Array, v: Array) -> Array:
            distances = square_distances(u, v)
            return sum(jnp.exp(-distances / width).mean() for width in (1.0, 4.0, 16.0))

        return mean(a, a) + mean(b, b) - 2 * mean(a, b)

    return jax.grad(discrepancy)(a)


@FIELD.add(f32(50000, 30), f32(30, 4000), f32(50000))
def random_fourier_regression(x: Array, frequencies: Array, y: Array) -> Array:
    """Ridge regression on random features."""
    angles = x @ frequencies
    features = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1) / jnp.sqrt(4000.0)
    return linalg.solve(features.T @ features + jnp.eye(8000), features.T @ y, assume_a="pos")


@FIELD.add(f32(30000, 12), f32(1500, 12), f32(30000, 3))
def nystrom_regression(x: Array, landmarks: Array, y: Array) -> Array:
    """Kernel regression with landmarks."""
    across = gaussian(x, landmarks)
    inside = gaussian(landmarks, landmarks)
    return jnp.linalg.solve(across.T @ across + 0.1 * inside, across.T @ y)


@FIELD.add(f32(12000, 5), f32(12000))
def kernel_conjugate_gradients(x: Array, y: Array) -> Array:
    """Conjugate gradients on a kernel matrix that is kept."""
    matrix = gaussian(x, x)
    return jax.scipy.sparse.linalg.cg(lambda v: matrix @ v + 0.1 * v, y, maxiter=50)[0]


@FIELD.add(f32(9000, 5), f32(9000))
def kernel_conjugate_gradients_anew(x: Array, y: Array) -> Array:
    """Conjugate gradients on a kernel matrix made anew in each step."""
    return jax.scipy.sparse.linalg.cg(lambda v: gaussian(x, x) @ v + 0.1 * v, y, maxiter=50)[0]


@FIELD.add(f32(5000, 3), f32(4000, 3), f32(5000), f32(4000))
def sinkhorn_plan(a: Array, b: Array, p: Array, q: Array) -> Array:
    """The cost of the plan after 50 scalings."""
    cost = square_distances(a, b)
    kernel = jnp.exp(-cost / 0.1)

    def body(_: int, scales: tuple[Array, Array]) -> tuple[Array, Array]:
        u = p / (kernel @ scales[1])
        return u, q / (kernel.T @ u)

    u, v = lax.fori_loop(0, 50, body, (jnp.ones_like(p), jnp.ones_like(q)))
    return jnp.sum(u[:, None] * kernel * v * cost)


@FIELD.add(f32(3000, 2), f32(3500, 2))
def sinkhorn_in_logarithms(a: Array, b: Array) -> Array:
    """Potentials by log-sum-exp, until they change no more."""
    cost = square_distances(a, b)

    def update(f: Array, g: Array) -> tuple[Array, Array]:
        f = -0.05 * jax.nn.logsumexp((g[None] - cost) / 0.05, axis=1)
        return f, -0.05 * jax.nn.logsumexp((f[:, None] - cost) / 0.05, axis=0)

    def go_on(state: tuple[Array, Array, Array]) -> Array:
        return state[2] > 1e-4

    def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        f, g = update(state[0], state[1])
        return f, g, jnp.abs(g - state[1]).max()

    start = (jnp.zeros(3000), jnp.zeros(3500), jnp.float32(1.0))
    return lax.while_loop(go_on, body, start)[0]


@FIELD.add(f32(2500, 2), f32(2000, 2))
def sinkhorn_unrolled_gradient(a: Array, b: Array) -> Array:
    """The gradient through ten scalings in a scan."""

    def cost(a: Array) -> Array:
        costs = square_distances(a, b)

        def body(g: Array, _: None) -> tuple[Array, None]:
            f = -0.1 * jax.nn.logsumexp((g[None] - costs) / 0.1, axis=1)
            return -0.1 * jax.nn.logsumexp((f[:, None] - costs) / 0.1, axis=0), None

        return lax.scan(body, jnp.zeros(2000), None, length=10)[0].mean()

    return jax.grad(cost)(a)


@FIELD.add(f32(200000, 32), f32(300, 32))
def k_means_iterations(x: Array, centres: Array) -> Array:
    """Ten steps of Lloyd's algorithm with one-hot assignments."""

    def body(_: int, centres: Array) -> Array:
        nearest = jnp.argmin(square_distances(x, centres), axis=1)
        weights = jax.nn.one_hot(nearest, 300)
        return weights.T @ x / jnp.maximum(weights.sum(0), 1)[:, None]

    return lax.fori_loop(0, 10, body, centres)


@FIELD.add(f32(100000, 16), f32(128, 16), f32(128, 16), f32(128))
def gaussian_mixture_step(x: Array, means: Array, variances: Array, logits: Array) -> tuple[Array, ...]:
    """A step of expectation maximisation with diagonal covariances."""
    scaled = (x[:, None] - means) ** 2 / variances
    logs = -0.5 * (scaled + jnp.log(variances)).sum(-1) + jax.nn.log_softmax(logits)
    weights = jax.nn.softmax(logs, axis=1)
    total = weights.sum(0)
    centre = weights.T @ x / total[:, None]
    return centre, weights.T @ x**2 / total[:, None] - centre**2, jnp.log(total)


@FIELD.add(f32(8000, 10), f32(8000))
def support_vector_gradient(x: Array, y: Array) -> Array:
    """The hinge loss's gradient in the dual weights."""

    def loss(weights: Array) -> Array:
        margins = y * (gaussian(x, x) @ weights)
        return jnp.maximum(0, 1 - margins).mean() + 0.01 * weights @ weights

    return jax.grad(loss)(y)


@FIELD.add(f32(3000, 50))
def spectral_embedding(x: Array) -> Array:
    """The first eigenvectors of a normalised Laplacian by subspace iteration."""
    weights = gaussian(x, x, 3.0)
    root = jax.lax.rsqrt(weights.sum(1))
    matrix = root[:, None] * weights * root

    def body(basis: Array, _: None) -> tuple[Array, None]:
        return jnp.linalg.qr(matrix @ basis)[0], None

    return lax.scan(body, jnp.ones((3000, 16)) + x[:, :16], None, length=20)[0]


@FIELD.add(f32(4000, 2), f32(4000, 100))
def t_sne_gradient(y: Array, x: Array) -> Array:
    """The gradient of t-SNE's loss with the affinities made on the way."""
    affinities = jax.nn.softmax(-square_distances(x, x) / 10 - 1e9 * jnp.eye(4000), axis=1)
    affinities = (affinities + affinities.T) / 8000

    def loss(y: Array) -> Array:
        near = 1 / (1 + square_distances(y, y))
        near = near * (1 - jnp.eye(4000))
        return jnp.sum(affinities * (jnp.log(affinities + 1e-12) - jnp.log(near / near.sum() + 1e-12)))

    return jax.grad(loss)(y)


@FIELD.add(f32(6000, 20), f32(6000, 10))
def independence_criterion(x: Array, y: Array) -> Array:
    """The Hilbert-Schmidt criterion of two centred kernel matrices."""

    def centred(matrix: Array) -> Array:
        return matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()

    return jnp.sum(centred(gaussian(x, x, 4.0)) * centred(gaussian(y, y, 3.0))) / 5999**2


@FIELD.add(adam_state((f32(6), f32(300, 6))), f32(), f32(6000, 6), f32(6000), i32(512))
def deep_kernel_minibatch(state: Tree, count: Array, x: Array, y: Array, batch: Array) -> Tree:
    """An Adam step on the regression of a minibatch on inducing points."""

    def loss(parameters: Tree, x: Array, y: Array) -> Array:
        scales, inducing = parameters
        inside = gaussian(inducing, inducing, scales) + 1e-3 * jnp.eye(300)
        across = gaussian(x, inducing, scales)
        weights = jnp.linalg.solve(inside + across.T @ across, across.T @ y)
        return ((y[batch] - (across @ weights)[batch]) ** 2).mean()

    return adam(loss)(state, count, x, y)


@FIELD.add(f32(1500, 40), f32(1500, 40), f32(1500, 40))
def triplet_margins(anchors: Array, positives: Array, negatives: Array) -> Array:
    """The mean margin over all triples of points."""
    near = square_distances(anchors, positives)
    far = square_distances(anchors, negatives)
    return jnp.maximum(0, near[:, :, None] - far[:, None, :] + 0.2).mean(axis=(1, 2))
