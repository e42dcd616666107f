"""Autoencoders, flows, diffusion, adversaries, energy and contrastive models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import linalg

from .programs import KEY, Array, Field, Tree, adam, adam_state, bf16, f32, i32, sgd

FIELD = Field()


def dense(x: Array, layer: tuple[Array, Array]) -> Array:
    """An affine layer."""
    return x @ layer[0] + layer[1]


def layers(*widths: int) -> Tree:
    """The shapes of affine layers one after the other."""
    return [(f32(a, b), f32(b)) for a, b in zip(widths, widths[1:], strict=False)]


@FIELD.add(adam_state((layers(784, 1000, 128), layers(64, 1000, 784))), f32(), f32(8192, 784), KEY)
def variational_autoencoder_step(state: Tree, count: Array, x: Array, key: Array) -> Tree:
    """An Adam step on the bound of a variational autoencoder."""

    def bound(parameters: Tree, x: Array, key: Array) -> Array:
        encoder, decoder = parameters
        mean, spread = jnp.split(dense(jnp.tanh(dense(x, encoder[0])), encoder[1]), 2, axis=1)
        z = mean + jnp.exp(spread) * jax.random.normal(key, mean.shape)
        logits = dense(jnp.tanh(dense(z, decoder[0])), decoder[1])
        likelihood = (jnp.logaddexp(0, logits) - x * logits).sum(1)
        return (likelihood + 0.5 * (mean**2 + jnp.exp(2 * spread) - 1 - 2 * spread).sum(1)).mean()

    return adam(bound)(state, count, x, key)


@FIELD.add((layers(784, 500, 100), layers(50, 500, 784)), f32(512, 784), KEY)
def importance_weighted_bound_gradient(parameters: Tree, x: Array, key: Array) -> Tree:
    """The gradient of a bound of 50 samples for each image."""

    def bound(parameters: Tree) -> Array:
        encoder, decoder = parameters
        mean, spread = jnp.split(dense(jax.nn.relu(dense(x, encoder[0])), encoder[1]), 2, axis=1)
        noise = jax.random.normal(key, (50, 512, 50))
        z = mean + jnp.exp(spread) * noise
        logits = dense(jax.nn.relu(dense(z, decoder[0])), decoder[1])
        weight = (x * logits - jnp.logaddexp(0, logits)).sum(-1)
        weight += (-0.5 * z**2 + 0.5 * noise**2 + spread).sum(-1)
        return -jax.nn.logsumexp(weight, axis=0).mean()

    return jax.grad(bound)(parameters)


@FIELD.add([(layers(32, 512, 64), layers(32, 512, 64))] * 4, f32(20000, 64))
def coupling_flow_gradient(parameters: Tree, x: Array) -> Tree:
    """The gradient of a flow of affine couplings."""

    def loss(parameters: Tree) -> Array:
        a, b = jnp.split(x, 2, axis=1)
        total = jnp.zeros(20000)
        for pair in parameters:
            for net in pair:
                scale, shift = jnp.split(dense(jax.nn.relu(dense(a, net[0])), net[1]), 2, axis=1)
                scale = jnp.tanh(scale)
                a, b = b * jnp.exp(scale) + shift, a
                total = total + scale.sum(1)
        return (0.5 * (a**2 + b**2).sum(1) - total).mean()

    return jax.grad(loss)(parameters)


@FIELD.add(f32(100_000, 16), f32(16, 25), f32(16, 25), f32(16, 24))
def spline_flow(x: Array, widths: Array, heights: Array, slopes: Array) -> Array:
    """A monotone spline of 25 bins in each dimension, with the logarithm of its slope."""
    edges = jnp.cumsum(jax.nn.softmax(widths), axis=-1)
    levels = jnp.cumsum(jax.nn.softmax(heights), axis=-1)
    y = jax.nn.sigmoid(x)[..., None]
    inside = jax.nn.one_hot((y > edges).sum(-1), 25)
    low = (inside * jnp.pad(edges, ((0, 0), (1, 0)))[:, :-1]).sum(-1)
    width = (inside * jnp.diff(edges, prepend=0)).sum(-1)
    height = (inside * jnp.diff(levels, prepend=0)).sum(-1)
    slope = (inside * jnp.pad(jax.nn.softplus(slopes), ((0, 0), (0, 1)))).sum(-1)
    t = (y[..., 0] - low) / width
    return jnp.log(height / width * (1 + slope * t * (1 - t))).sum(-1)


@FIELD.add(layers(3, 64, 64, 3), f32(8192, 3), KEY)
def continuous_flow_with_trace(parameters: Tree, x: Array, key: Array) -> tuple[Array, Array]:
    """A flow in time with the exact trace of its Jacobian, 50 Euler steps."""

    def slope(x: Array) -> Array:
        for layer in parameters[:-1]:
            x = jnp.tanh(dense(x, layer))
        return dense(x, parameters[-1])

    def body(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        x, logs = state
        trace = jnp.trace(jax.vmap(jax.jacfwd(slope))(x), axis1=1, axis2=2)
        return (x + 0.02 * slope(x), logs - 0.02 * trace), None

    start = x + 0.01 * jax.random.normal(key, x.shape)
    return lax.scan(body, (start, jnp.zeros(8192)), None, length=50)[0]


def convolve(x: Array, weights: Array, stride: int = 1) -> Array:
    """A 2-D convolution of (batch, height, width, channels)."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, weights, (stride, stride), "SAME", dimension_numbers=numbers)


def group_norm(x: Array, groups: int = 8) -> Array:
    """Group normalisation without parameters."""
    y = x.reshape(*x.shape[:3], groups, -1)
    mean = y.mean((1, 2, 4), keepdims=True)
    return ((y - mean) * lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape)


UNET = (
    f32(3, 3, 3, 32),
    [f32(3, 3, 32, 32), f32(3, 3, 64, 64), f32(3, 3, 128, 128)],
    [f32(3, 3, 32, 64), f32(3, 3, 64, 128)],
    [f32(3, 3, 192, 64), f32(3, 3, 96, 32)],
    f32(3, 3, 32, 3),
    f32(64, 128),
)


def unet(parameters: Tree, x: Array, time: Array) -> Array:
    """Three levels with skips; the time is added in the middle."""
    first, blocks, down, up, last, embed = parameters
    x = convolve(x, first)
    kept = []
    for block, lower in zip(blocks[:2], down, strict=True):
        x = x + convolve(jax.nn.silu(group_norm(x)), block)
        kept.append(x)
        x = convolve(x, lower, 2)
    waves = time[:, None] * jnp.exp(-jnp.arange(32) / 4.0)
    x = x + (jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], axis=1) @ embed)[:, None, None]
    x = x + convolve(jax.nn.silu(group_norm(x)), blocks[2])
    for skip, upper in zip(kept[::-1], up, strict=True):
        x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
        x = convolve(jax.nn.silu(group_norm(jnp.concatenate([x, skip], axis=-1))), upper)
    return convolve(x, last)


@FIELD.add(UNET, f32(32, 64, 64, 3), f32(32), KEY)
def diffusion_training_step(parameters: Tree, x: Array, time: Array, key: Array) -> Tree:
    """A step of a network that predicts the noise."""

    def loss(parameters: Tree, x: Array, time: Array, key: Array) -> Array:
        noise = jax.random.normal(key, x.shape)
        share = jax.nn.sigmoid(-time)[:, None, None, None]
        mixed = jnp.sqrt(share) * x + jnp.sqrt(1 - share) * noise
        return ((unet(parameters, mixed, time) - noise) ** 2).mean()

    return sgd(loss)(parameters, x, time, key)


@FIELD.add(UNET, f32(16, 128, 128, 3), KEY)
def diffusion_sampling(parameters: Tree, x: Array, key: Array) -> Array:
    """50 steps from noise to images."""

    def body(index: int, x: Array) -> Array:
        time = jnp.full((16,), 50.0) - index
        fresh = jax.random.normal(jax.random.fold_in(key, index), x.shape)
        return (x - 0.05 * unet(parameters, x, time)) * 1.01 + 0.02 * fresh

    return lax.fori_loop(0, 50, body, x)


@FIELD.add(f32(4096, 512), f32(4096, 512), f32())
def clip_loss_gradient(images: Array, texts: Array, scale: Array) -> tuple[Array, Array]:
    """The gradient of the symmetric contrastive loss."""

    def loss(images: Array, texts: Array) -> Array:
        images = images / jnp.linalg.norm(images, axis=1, keepdims=True)
        texts = texts / jnp.linalg.norm(texts, axis=1, keepdims=True)
        logits = images @ texts.T * jnp.exp(scale)
        right = jnp.arange(4096)
        rows = jax.nn.log_softmax(logits, axis=1)[right, right]
        columns = jax.nn.log_softmax(logits, axis=0)[right, right]
        return -(rows + columns).mean() / 2

    return jax.grad(loss, argnums=(0, 1))(images, texts)


@FIELD.add(bf16(8192, 256))
def sim_clr_loss_gradient(x: Array) -> Array:
    """The gradient of the loss on pairs of views, itself masked, in bfloat16."""

    def loss(x: Array) -> Array:
        unit = x * lax.rsqrt((x.astype(jnp.float32) ** 2).sum(1, keepdims=True)).astype(jnp.bfloat16)
        logits = (unit @ unit.T).astype(jnp.float32) * 10 - 1e9 * jnp.eye(8192)
        other = (jnp.arange(8192) + 4096) % 8192
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), other[:, None], axis=1).mean()

    return jax.grad(loss)(x)


@FIELD.add(f32(4096, 1024))
def barlow_twins_gradient(x: Array) -> Array:
    """The gradient of a loss on the correlations of two halves of a batch."""

    def loss(x: Array) -> Array:
        a, b = jnp.split((x - x.mean(0)) / (x.std(0) + 1e-5), 2)
        products = a.T @ b / 2048
        diagonal = jnp.eye(1024)
        return (jnp.where(diagonal == 1, (products - 1) ** 2, 0.005 * products**2)).sum()

    return jax.grad(loss)(x)


@FIELD.add((layers(100, 2048, 3072), layers(3072, 1024, 1)), f32(2048, 3072), KEY)
def adversarial_penalty_gradient(parameters: Tree, real: Array, key: Array) -> Tree:
    """The critic's gradient with a penalty on its own slope, a second derivative."""

    def critic(net: Tree, x: Array) -> Array:
        return dense(jax.nn.leaky_relu(dense(x, net[0])), net[1])[..., 0]

    def loss(net: Tree) -> Array:
        generator = parameters[0]
        z = jax.random.normal(key, (2048, 100))
        fake = jnp.tanh(dense(jax.nn.relu(dense(z, generator[0])), generator[1]))
        mixed = 0.5 * (real + fake)
        slope = jax.vmap(jax.grad(critic, argnums=1), (None, 0))(net, mixed)
        penalty = ((jnp.sqrt((slope**2).sum(1) + 1e-8) - 1) ** 2).mean()
        return critic(net, fake).mean() - critic(net, real).mean() + 10 * penalty

    return jax.grad(loss)(parameters[1])


@FIELD.add(f32(16, 32, 32, 256), f32(4096, 256))
def vector_quantisation_gradient(x: Array, codes: Array) -> tuple[Array, Array]:
    """The gradient of nearest codes with a straight-through estimator."""

    def loss(x: Array, codes: Array) -> Array:
        flat = x.reshape(-1, 256)
        distances = (flat**2).sum(1, keepdims=True) - 2 * flat @ codes.T + (codes**2).sum(1)
        near = codes[distances.argmin(1)]
        through = flat + lax.stop_gradient(near - flat)
        return (
            ((lax.stop_gradient(near) - flat) ** 2).mean()
            + ((near - lax.stop_gradient(flat)) ** 2).mean()
            + (through**3).mean()
        )

    return jax.grad(loss, argnums=(0, 1))(x, codes)


@FIELD.add(layers(2, 128, 128, 2), f32(20000, 2))
def score_matching_gradient(parameters: Tree, x: Array) -> Tree:
    """The gradient of exact score matching, with the divergence of the score."""

    def score(parameters: Tree, x: Array) -> Array:
        for layer in parameters[:-1]:
            x = jax.nn.softplus(dense(x, layer))
        return dense(x, parameters[-1])

    def loss(parameters: Tree) -> Array:
        def each(x: Array) -> Array:
            slope = jax.jacrev(lambda x: score(parameters, x))(x)
            return jnp.trace(slope) + 0.5 * (score(parameters, x) ** 2).sum()

        return jax.vmap(each)(x).mean()

    return jax.grad(loss)(parameters)


@FIELD.add(f32(200, 256, 128), f32(200, 128, 128), i32(200))
def mahalanobis_by_group(x: Array, covariances: Array, which: Array) -> Array:
    """Likelihoods of groups of points under the covariance of another group."""
    factors = jnp.linalg.cholesky(covariances @ covariances.swapaxes(1, 2) + jnp.eye(128))[which]
    solved = jax.vmap(lambda factor, x: linalg.solve_triangular(factor, x.T, lower=True))(factors, x)
    logs = jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)).sum(1)
    return -0.5 * (solved**2).sum(1) - logs[:, None]
