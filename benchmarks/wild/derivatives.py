"""Jacobians, Hessians and gradients of each example."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, f32, i32


def tall_jacobian(directions: Array, places: Array, frequencies: Array) -> Array:
    """The Jacobian of phases by directions, in reverse mode.

    https://github.com/jax-ml/jax/issues/215
    Reported: an output of 6.5 MB takes 8 GB. Cause: the identity of 20,480 outputs, 1.7 GB, and every cotangent made of
    it. By hand: forward mode, which needs a basis of 20.
    """
    return jax.jacrev(_phases)(directions, places, frequencies)


def _phases(directions: Array, places: Array, frequencies: Array) -> Array:
    x, y = jnp.tanh(directions[:, 0, None, None]) / 2, jnp.tanh(directions[:, 1, None, None]) / 2
    rest = jnp.sqrt(1 - x**2 - y**2) - 1
    return (places[:, 0, None] * x + places[:, 1, None] * y + places[:, 2, None] * rest) * frequencies


def _tall_jacobian_by_hand(directions: Array, places: Array, frequencies: Array) -> Array:
    return jax.jacfwd(_phases)(directions, places, frequencies)


def forward_jacobian_of_fields(coefficients: Array, basis: Array, weights: Array) -> Array:
    """Normal equations of a least-squares problem, from a Jacobian in forward mode.

    https://github.com/PlasmaControl/DESC/issues/826
    Reported: Jacobians are too large for the memory; here 4,000 coefficients, 40,000 points, four fields. Cause: a vmap
    over all columns carries every intermediate of the objective 4,000 times. By hand: columns in chunks.
    """

    def residuals(c: Array) -> Array:
        one, two, three, four = (basis @ jnp.stack([c, c[::-1], jnp.roll(c, 1), c**2], 1)).T
        size = jnp.sqrt(1 + one**2 + two**2)
        return weights * (one * jnp.tanh(three) / size - two * jnp.sin(four))

    jacobian = jax.jacfwd(residuals)(coefficients)
    return jacobian.T @ jacobian


def clipped_image_gradients(
    first: Array, second: Array, last: Array, images: Array, labels: Array
) -> tuple[Array, ...]:
    """Gradients of each image by the weights of a convolutional network, clipped, then summed.

    https://github.com/meta-pytorch/opacus/pull/16
    Reported: batches that do not fit, where 256 and more would be better; here 2,048. Cause: a gradient of every weight
    for every example, 0.7 GB for the last layer. By hand: virtual steps that add up clipped gradients.
    """

    def loss(weights: tuple[Array, Array, Array], image: Array, label: Array) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.nn.relu(lax.conv_general_dilated(image[None], weights[0], (2, 2), "SAME", dimension_numbers=numbers))
        x = jax.nn.relu(lax.conv_general_dilated(x, weights[1], (2, 2), "SAME", dimension_numbers=numbers))
        seen = x.reshape(-1) @ weights[2]
        return jax.nn.logsumexp(seen) - seen[label % seen.shape[0]]

    weights = (first, second, last)
    each = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, images, labels)
    squares = sum((g**2).reshape(len(images), -1).sum(1) for g in each)
    scale = jnp.minimum(1, 1 / jnp.sqrt(squares + 1e-12))
    return tuple(jnp.tensordot(scale, g, 1) for g in each)


def diagonal_of_curvature(first: Array, second: Array, x: Array) -> tuple[Array, Array]:
    """The diagonal of a generalised Gauss-Newton matrix, from the Jacobian of every output of every example.

    https://github.com/aleximmer/Laplace/issues/281
    Reported: 7 TB asked for where the weights take 47 MB. Cause: the Jacobian, examples x outputs x weights, is formed
    and squared. By hand: the last layer alone.
    """

    def network(weights: tuple[Array, Array], one: Array) -> Array:
        return jnp.tanh(one @ weights[0]) @ weights[1]

    jacobians = jax.vmap(jax.jacrev(network), (None, 0))((first, second), x)
    return tuple((j**2).sum((0, 1)) for j in jacobians)


def curvature_of_a_fit(weights: Array, first: Array, x: Array, y: Array) -> Array:
    """The whole Hessian of a loss by the last layer of a network.

    https://github.com/aleximmer/Laplace/issues/69
    Reported: Hessians run out of memory with larger models; here 2,000 weights, 50,000 examples. Cause: a vmap over the
    identity makes tensors of weights x examples, 0.4 GB each. By hand: subnetworks, diagonals, or products with vectors
    one by one.
    """
    hidden = jnp.tanh(x @ first)

    def loss(weights: Array) -> Array:
        return jnp.log1p(jnp.exp(-y * (hidden @ weights))).mean() + 0.01 * (weights**2).sum()

    return jax.hessian(loss)(weights)


def second_derivatives_of_a_field(first: Array, second: Array, last: Array, points: Array) -> Array:
    """The residual of a differential equation: a network, its first and second derivatives, then the gradient.

    https://github.com/patrick-kidger/diffrax/issues/691
    Reported: derivatives by the inputs of a large batch of points; here 200,000. Cause: nested forward derivatives and
    the reverse pass over them keep ten tensors of points x width, 0.2 GB each. By hand: smaller batches.
    """

    def field(z: Array) -> Array:
        return jnp.tanh(jnp.tanh(z @ first) @ second) @ last

    def residual(z: Array) -> Array:
        along, ahead = jnp.array([1.0, 0.0], z.dtype), jnp.array([0.0, 1.0], z.dtype)
        value, in_time = jax.jvp(field, (z,), (ahead,))

        def slope(at: Array) -> Array:
            return jax.jvp(field, (at,), (along,))[1]

        in_space, bent = jax.jvp(slope, (z,), (along,))
        return in_time + value * in_space - 0.01 * bent

    return (jax.vmap(residual)(points) ** 2).mean()


ENTRIES = (
    Entry(
        tall_jacobian,
        (f32(10, 2), f32(128, 3), f32(16)),
        (f32(3, 2), f32(20, 3), f32(4)),
        (f32(10, 2), f32(64, 3), f32(16)),
        _tall_jacobian_by_hand,
    ),
    Entry(
        forward_jacobian_of_fields,
        (f32(4000), f32(40_000, 4000), f32(40_000)),
        (f32(40), f32(500, 40), f32(500)),
        (f32(500), f32(8000, 500), f32(8000)),
    ),
    Entry(
        clipped_image_gradients,
        (f32(3, 3, 3, 64), f32(3, 3, 64, 128), f32(8192, 10), f32(2048, 32, 32, 3), i32(2048)),
        (f32(3, 3, 2, 4), f32(3, 3, 4, 8), f32(128, 4), f32(150, 16, 16, 2), i32(150)),
        (f32(3, 3, 3, 32), f32(3, 3, 32, 64), f32(4096, 10), f32(256, 32, 32, 3), i32(256)),
    ),
    Entry(
        diagonal_of_curvature,
        (f32(1024, 1024), f32(1024, 100), f32(64, 1024)),
        (f32(32, 32), f32(32, 4), f32(40, 32)),
        (f32(256, 256), f32(256, 30), f32(40, 256)),
    ),
    Entry(
        curvature_of_a_fit,
        (f32(2000), f32(20, 2000), f32(50_000, 20), f32(50_000)),
        (f32(40), f32(4, 40), f32(500, 4), f32(500)),
        (f32(500), f32(20, 500), f32(20_000, 20), f32(20_000)),
    ),
    Entry(
        second_derivatives_of_a_field,
        (f32(2, 256), f32(256, 256), f32(256), f32(200_000, 2)),
        (f32(2, 16), f32(16, 16), f32(16), f32(1200, 2)),
        (f32(2, 96), f32(96, 96), f32(96), f32(30_000, 2)),
        gradient=(0, 1, 2),
    ),
)
