"""Convolutions, pooling, images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Field, Tree, adam, adam_state, bf16, f32, i32, sgd, shape

FIELD = Field()


def convolve(x: Array, weights: Array, stride: int = 1, groups: int = 1, dilation: int = 1) -> Array:
    """A 2-D convolution of (batch, height, width, channels) with SAME padding."""
    return lax.conv_general_dilated(
        x,
        weights,
        (stride, stride),
        "SAME",
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def batch_norm(x: Array, scale: Array, shift: Array) -> Array:
    """Batch normalisation with the batch's own statistics."""
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def max_pool(x: Array, size: int = 2, stride: int = 2) -> Array:
    """Max pooling of (batch, height, width, channels)."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "SAME")


def mean_pool(x: Array) -> Array:
    """Means of 2 by 2."""
    return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


@FIELD.add(f32(16, 224, 224, 3), f32(7, 7, 3, 64))
def stem_forward(x: Array, weights: Array) -> Array:
    """The first layers of a residual network."""
    return max_pool(jax.nn.relu(convolve(x, weights, 2)), 3)


@FIELD.add(f32(32, 112, 112, 32))
def max_pool_gradient(x: Array) -> Array:
    """The gradient of max pooling."""
    return jax.grad(lambda x: (max_pool(jnp.tanh(x)) ** 2).sum())(x)


@FIELD.add(f32(32, 112, 112, 32))
def overlapping_max_pool_gradient(x: Array) -> Array:
    """The gradient of max pooling with windows of 3 at steps of 2."""
    return jax.grad(lambda x: (max_pool(x, 3) ** 3).sum())(x)


@FIELD.add(f32(64, 128, 128, 16))
def mean_pool_pyramid(x: Array) -> list[Array]:
    """The details lost at each of three halvings."""
    details = []
    for _ in range(3):
        small = mean_pool(x)
        details.append(jnp.abs(x - jnp.repeat(jnp.repeat(small, 2, 1), 2, 2)).mean((1, 2)))
        x = small
    return details


@FIELD.add((f32(3, 3, 64, 64), f32(3, 3, 64, 64), f32(64), f32(64), f32(64), f32(64)), f32(32, 56, 56, 64))
def residual_block_step(parameters: Tree, x: Array) -> Tree:
    """A step on two convolutions with batch normalisation and a skip."""

    def loss(parameters: Tree, x: Array) -> Array:
        first, second, a, b, c, d = parameters
        y = jax.nn.relu(batch_norm(convolve(x, first), a, b))
        return (jax.nn.relu(x + batch_norm(convolve(y, second), c, d)) ** 2).mean()

    return sgd(loss)(parameters, x)


@FIELD.add((f32(1, 1, 64, 256), f32(3, 3, 1, 256), f32(1, 1, 256, 64), f32(64, 256)), f32(16, 56, 56, 64))
def inverted_bottleneck_gradient(parameters: Tree, x: Array) -> Tree:
    """Depthwise convolution between two pointwise ones, with squeeze and excitation."""

    def loss(parameters: Tree, x: Array) -> Array:
        up, deep, down, squeeze = parameters
        y = jax.nn.silu(convolve(jax.nn.silu(convolve(x, up)), deep, groups=256))
        y = y * jax.nn.sigmoid(y.mean((1, 2)) @ squeeze.T @ squeeze)[:, None, None]
        return ((x + convolve(y, down)) ** 2).mean()

    return jax.grad(loss)(parameters, x)


@FIELD.add(f32(8, 64, 16000), f32(64, 64, 9), f32(64, 64, 1))
def dilated_audio_stack(x: Array, weights: Array, out: Array) -> Array:
    """Gated convolutions of one dimension with growing gaps."""
    total = jnp.zeros_like(x)
    for level in range(5):
        y = lax.conv_general_dilated(x, weights, (1,), [(8 * 2**level, 0)], rhs_dilation=(2**level,))
        y = jnp.tanh(y) * jax.nn.sigmoid(y)
        total = total + lax.conv_general_dilated(y, out, (1,), "SAME")
        x = x + y
    return total


@FIELD.add((f32(16, 1, 3, 3, 3), f32(32, 16, 3, 3, 3)), f32(2, 1, 96, 96, 96), i32(2))
def volume_classifier_gradient(parameters: Tree, x: Array, labels: Array) -> Tree:
    """Convolutions of three dimensions and their gradient."""

    def loss(parameters: Tree, x: Array) -> Array:
        for weights in parameters:
            x = jax.nn.relu(lax.conv_general_dilated(x, weights, (2, 2, 2), "SAME"))
        logits = x.mean((2, 3, 4))
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    return jax.grad(loss)(parameters, x)


@FIELD.add(f32(16, 64, 64, 128), f32(4, 4, 64, 128))
def transposed_convolution(x: Array, weights: Array) -> Array:
    """An image of twice the size, normalised by instance."""
    y = lax.conv_transpose(x, weights, (2, 2), "SAME", dimension_numbers=("NHWC", "HWOI", "NHWC"))
    return jnp.tanh((y - y.mean((1, 2), keepdims=True)) / (y.std((1, 2), keepdims=True) + 1e-5))


@FIELD.add((f32(4, 4, 32, 64), f32(4, 4, 3, 32)), f32(8, 64, 64, 64), f32(8, 256, 256, 3))
def decoder_gradient(parameters: Tree, x: Array, target: Array) -> Tree:
    """The gradient of two transposed convolutions."""

    def loss(parameters: Tree, x: Array) -> Array:
        for weights in parameters:
            x = lax.conv_transpose(x, weights, (2, 2), "SAME", dimension_numbers=("NHWC", "HWOI", "NHWC"))
            x = jax.nn.leaky_relu(x)
        return jnp.abs(x - target).mean()

    return jax.grad(loss)(parameters, x)


@FIELD.add(f32(4, 3, 512, 512), f32(8, 3, 5, 5))
def channels_first_filters(x: Array, weights: Array) -> Array:
    """A filter bank on images whose channels come first, and the energy of its answers."""
    y = lax.conv_general_dilated(x, weights, (1, 1), "VALID")
    return jnp.sqrt(lax.reduce_window(y**2, 0.0, lax.add, (1, 1, 8, 8), (1, 1, 4, 4), "VALID") + 1e-6)


@FIELD.add(f32(8, 512, 512, 3))
def resize_and_compare(x: Array) -> Array:
    """The loss of detail when an image is made smaller and larger again."""
    small = jax.image.resize(x, (8, 128, 128, 3), "linear")
    back = jax.image.resize(small, (8, 512, 512, 3), "cubic")
    return ((back - x) ** 2).mean((1, 2, 3))


@FIELD.add(f32(4, 512, 512, 8), f32(4, 512, 512, 2))
def warp_gradient(x: Array, flow: Array) -> Array:
    """The gradient of a warped image's error in the flow."""

    def warp(image: Array, flow: Array) -> Array:
        rows = jnp.clip(jnp.arange(512)[:, None] + flow[..., 0], 0, 510)
        columns = jnp.clip(jnp.arange(512) + flow[..., 1], 0, 510)
        top, left = jnp.floor(rows).astype(int), jnp.floor(columns).astype(int)
        down, right = (rows - top)[..., None], (columns - left)[..., None]
        upper = image[top, left] * (1 - right) + image[top, left + 1] * right
        lower = image[top + 1, left] * (1 - right) + image[top + 1, left + 1] * right
        return upper * (1 - down) + lower * down

    return jax.grad(lambda flow: ((jax.vmap(warp)(x, flow) - x) ** 2).sum())(flow)


@FIELD.add(f32(16, 64, 64, 32), f32(16, 64, 64, 32))
def correlation_volume(a: Array, b: Array) -> Array:
    """All pairs of two feature maps, and the best match of each place."""
    volume = jnp.einsum("bijc,bklc->bijkl", a, b) / 6
    weights = jax.nn.softmax(volume.reshape(16, 64, 64, 4096), axis=-1)
    return weights @ jnp.stack(jnp.meshgrid(jnp.arange(64.0), jnp.arange(64.0)), -1).reshape(4096, 2)


@FIELD.add(f32(4, 1080, 1920))
def edges_of_images(x: Array) -> Array:
    """Sobel edges that are the largest in their neighbourhood."""
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    size = jnp.sqrt(across**2 + down**2)
    most = lax.reduce_window(size, -jnp.inf, lax.max, (1, 3, 3), (1, 1, 1), "SAME")
    return jnp.where(size >= most, size, 0.0)


@FIELD.add(shape(jnp.uint8, 16, 600, 800, 3))
def augment_bytes(x: Array) -> Array:
    """Bytes to normalised, flipped, cropped floats."""
    y = x[:, 44:556, 144:656].astype(jnp.float32) / 255
    grey = y @ jnp.array([0.3, 0.59, 0.11])
    y = 0.8 * y + 0.2 * grey[..., None]
    y = (y - jnp.array([0.48, 0.45, 0.40])) / jnp.array([0.23, 0.22, 0.22])
    return jnp.concatenate([y, y[:, :, ::-1]])


@FIELD.add(f32(2, 128, 128, 96), f32(9, 96))
def local_self_similarity(x: Array, weights: Array) -> Array:
    """Patches of 3 by 3 compared with their centres."""
    patches = lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    patches = patches.reshape(2, 128, 128, 96, 9)
    return jax.nn.softmax((patches * x[..., None]).sum(3), axis=-1) @ weights


def vit_shapes(width: int, classes: int) -> Tree:
    """The parameters of a small vision transformer."""
    layer = (f32(width, 3 * width), f32(width, width), f32(width, 4 * width), f32(4 * width, width))
    return (f32(16 * 16 * 3, width), [layer] * 4, f32(width, classes))


@FIELD.add(adam_state(vit_shapes(384, 1000)), f32(), f32(16, 224, 224, 3), i32(16))
def vision_transformer_step(state: Tree, count: Array, x: Array, labels: Array) -> Tree:
    """An Adam step on four layers over patches of 16 by 16."""

    def normal(x: Array) -> Array:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    def loss(parameters: Tree, x: Array, labels: Array) -> Array:
        patch, layers, head = parameters
        x = x.reshape(16, 14, 16, 14, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(16, 196, 768) @ patch
        for into, out, up, down in layers:
            q, k, v = jnp.split((normal(x) @ into).reshape(16, 196, 6, 192), 3, -1)
            weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8, axis=-1)
            x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(16, 196, 384) @ out
            x = x + jax.nn.gelu(normal(x) @ up, approximate=False) @ down
        logs = jax.nn.log_softmax(x.mean(1) @ head)
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    return adam(loss)(state, count, x, labels)


@FIELD.add(bf16(16, 128, 128, 64), bf16(3, 3, 64, 64))
def convolution_bf16_gradient(x: Array, weights: Array) -> tuple[Array, Array]:
    """The gradient of a dilated convolution in bfloat16, loss in float32."""

    def loss(x: Array, weights: Array) -> Array:
        return (jax.nn.gelu(convolve(x, weights, dilation=2)).astype(jnp.float32) ** 2).mean()

    return jax.grad(loss, argnums=(0, 1))(x, weights)
