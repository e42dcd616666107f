"""Higher derivatives, Jacobians, and vmap of things."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Field, f32, i32

FIELD = Field()

Net = list[Array]


def net(parameters: Net, x: Array) -> Array:
    """A network of tanh layers."""
    for weights in parameters[:-1]:
        x = jnp.tanh(x @ weights)
    return x @ parameters[-1]


@FIELD.add(
    [f32(256, 1024), f32(1024, 1024), f32(1024, 10)], f32(8192, 256), [f32(256, 1024), f32(1024, 1024), f32(1024, 10)]
)
def hessian_vector_product(parameters: Net, x: Array, direction: Net) -> Net:
    """The change of the gradient along a direction, forward over reverse."""
    slope = jax.grad(lambda p: jax.nn.logsumexp(net(p, x), axis=1).mean())
    return jax.jvp(slope, (parameters,), (direction,))[1]


@FIELD.add([f32(256, 512), f32(512, 512), f32(512, 10)], f32(4096, 256), [f32(256, 512), f32(512, 512), f32(512, 10)])
def gauss_newton_product(parameters: Net, x: Array, direction: Net) -> Net:
    """J' H J v of a softmax classifier."""
    logits, along = jax.jvp(lambda p: net(p, x), (parameters,), (direction,))
    chance = jax.nn.softmax(logits)
    curved = chance * along - chance * (chance * along).sum(1, keepdims=True)
    return jax.vjp(lambda p: net(p, x), parameters)[1](curved)[0]


@FIELD.add([f32(128, 256), f32(256, 256), f32(256, 128)], f32(1024, 128))
def jacobian_forward(parameters: Net, x: Array) -> Array:
    """The log-determinants of Jacobians, column by column."""
    each = jax.vmap(jax.jacfwd(lambda x: net(parameters, x)))(x)
    return jnp.linalg.slogdet(each + jnp.eye(128))[1]


@FIELD.add([f32(300, 256), f32(256, 256), f32(256, 64)], f32(1024, 300))
def jacobian_backward(parameters: Net, x: Array) -> Array:
    """The largest column of each Jacobian, row by row."""
    each = jax.vmap(jax.jacrev(lambda x: net(parameters, x)))(x)
    return jnp.sqrt((each**2).sum(1)).max(1)


@FIELD.add(f32(1500), f32(4000, 1500), f32(4000))
def full_hessian_newton(weights: Array, x: Array, y: Array) -> Array:
    """A Newton step of logistic regression with jax.hessian."""

    def loss(weights: Array) -> Array:
        return jnp.logaddexp(0, -y * (x @ weights)).mean() + 0.01 * weights @ weights

    return weights - jnp.linalg.solve(jax.hessian(loss)(weights), jax.grad(loss)(weights))


@FIELD.add([f32(64, 512), f32(512, 512), f32(512, 1)], f32(2048, 64), f32(2048))
def private_gradients(parameters: Net, x: Array, y: Array) -> Net:
    """Gradients of each example, clipped, then summed."""

    def loss(parameters: Net, x: Array, y: Array) -> Array:
        return (net(parameters, x)[0] - y) ** 2

    slopes = jax.vmap(jax.grad(loss), (None, 0, 0))(parameters, x, y)
    sizes = jnp.sqrt(sum((s**2).sum((1, 2)) for s in slopes))
    scale = jnp.minimum(1, 1 / sizes)
    return [jnp.einsum("n,nij->ij", scale, s) for s in slopes]


@FIELD.add([f32(64, 256), f32(256, 256), f32(256, 8)], f32(512, 64))
def tangent_kernel(parameters: Net, x: Array) -> Array:
    """The neural tangent kernel from whole Jacobians."""
    slopes = jax.jacrev(lambda p: net(p, x).sum(1))(parameters)
    return sum(jnp.einsum("nij,mij->nm", s, s) for s in slopes)


@FIELD.add([f32(2, 256), f32(256, 256), f32(256, 256), f32(256, 1)], f32(50000, 2))
def physics_informed_gradient(parameters: Net, points: Array) -> Net:
    """The gradient of the residual of a differential equation, with second derivatives."""

    def residual(parameters: Net, point: Array) -> Array:
        def u(point: Array) -> Array:
            return net(parameters, point)[0]

        slope = jax.grad(u)(point)
        bend = jax.jvp(lambda x: jax.grad(u)(x)[0], (point,), (jnp.array([1.0, 0.0]),))[1]
        return slope[1] + u(point) * slope[0] - 0.01 * bend

    return jax.grad(lambda p: (jax.vmap(residual, (None, 0))(p, points) ** 2).mean())(parameters)


@FIELD.add([f32(32, 128, 256), f32(32, 256, 256), f32(32, 256, 10)], f32(4096, 128), i32(4096))
def ensemble_step(parameters: Net, x: Array, labels: Array) -> Net:
    """A step of 32 networks at once."""

    def loss(parameters: Net) -> Array:
        logs = jax.nn.log_softmax(net(parameters, x))
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    slopes = jax.vmap(jax.grad(loss))(parameters)
    return [p - 0.1 * s for p, s in zip(parameters, slopes, strict=True)]


@FIELD.add([f32(64, 128), f32(128, 128), f32(128, 1)], f32(32, 200, 64), f32(32, 200))
def meta_learning_gradient(parameters: Net, x: Array, y: Array) -> Net:
    """The gradient through five steps on each of 32 tasks."""

    def loss(parameters: Net, x: Array, y: Array) -> Array:
        return ((net(parameters, x)[:, 0] - y) ** 2).mean()

    def adapted(parameters: Net, x: Array, y: Array) -> Array:
        fast = parameters
        for _ in range(5):
            slopes = jax.grad(loss)(fast, x[:100], y[:100])
            fast = [p - 0.01 * s for p, s in zip(fast, slopes, strict=True)]
        return loss(fast, x[100:], y[100:])

    return jax.grad(lambda p: jax.vmap(adapted, (None, 0, 0))(p, x, y).mean())(parameters)


@FIELD.add(f32(1000, 1000), f32(1000))
def implicit_fixed_point_gradient(weights: Array, x: Array) -> Array:
    """The gradient of a layer in equilibrium by its implicit equation."""

    def equilibrium(weights: Array) -> Array:
        def step(z: Array) -> Array:
            return jnp.tanh(weights @ z * 0.01 + x)

        return lax.custom_root(
            lambda z: z - step(z),
            x,
            lambda f, z: lax.fori_loop(0, 50, lambda _, z: z - f(z), z),
            lambda g, y: jnp.linalg.solve(jax.jacobian(g)(y), y),
        )

    return jax.grad(lambda w: (equilibrium(w) ** 2).sum())(weights)


@FIELD.add(f32(4096, 100), f32(100, 100), f32(4096, 100))
def per_row_quadratic_forms(x: Array, matrix: Array, scale: Array) -> tuple[Array, Array]:
    """Values and gradients of a quadratic form by vmap, with a matrix of its own in each row."""

    def form(x: Array, scale: Array) -> Array:
        own = matrix * scale + jnp.outer(x, x)
        return jnp.tanh(own @ x) @ x

    return jax.vmap(jax.value_and_grad(form))(x, scale)


@FIELD.add(f32(600, 600), f32(600, 600))
def eigenvalue_gradient(a: Array, weights: Array) -> Array:
    """The gradient through a symmetric eigendecomposition."""

    def loss(a: Array) -> Array:
        values, vectors = jnp.linalg.eigh(a + a.T)
        return (jnp.log1p(values**2)).sum() + (weights * vectors**2).sum()

    return jax.grad(loss)(a)


@FIELD.add(f32(2000, 400), f32(400))
def singular_values_soft_threshold(x: Array, weights: Array) -> Array:
    """The matrix with its singular values made smaller."""
    u, s, v = jnp.linalg.svd(x, full_matrices=False)
    return (u * jnp.maximum(s - jnp.abs(weights), 0)) @ v
