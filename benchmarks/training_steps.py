"""Gradients of unrolled networks, exported: the loss and its gradient by all weights, as StableHLO for a CPU.

    python benchmarks/training_steps.py DIRECTORY
    python benchmarks/training_steps.py DIRECTORY --size=large --only long_gpt

Networks as people write them in plain JAX, a Python loop over the layers, nothing checkpointed. The middle sizes run in
seconds on two cores; the large ones are meant to be compiled only.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

Array = Any
Tree = Any


class Weights:
    """Gives out weights in order: in a first run it records their shapes, in the next it hands the arrays out."""

    def __init__(self, arrays: list[Array] | None = None):
        self.arrays = None if arrays is None else iter(arrays)
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, *shape: int) -> Array:
        self.shapes.append(shape)
        return jnp.zeros(shape) if self.arrays is None else next(self.arrays)


Loss = Callable[..., Array]


@dataclass(frozen=True, slots=True)
class Step:
    """One network. loss: of weights and inputs. inputs: their shapes and types, of the middle and the large size."""

    loss: Loss
    middle: tuple[jax.ShapeDtypeStruct, ...]
    large: tuple[jax.ShapeDtypeStruct, ...]

    def text(self, size: str) -> str:
        """The module."""
        inputs = self.middle if size == "middle" else self.large
        record = Weights()
        jax.eval_shape(lambda *given: self.loss(record, *given), *inputs)
        weights = [f32(*shape) for shape in record.shapes]

        def loss(arrays: list[Array], *given: Array) -> Array:
            return self.loss(Weights(arrays), *given)

        return str(
            jax.export.export(jax.jit(jax.value_and_grad(loss)), platforms=["cpu"])(weights, *inputs).mlir_module()
        )


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """The mean of -log p(label)."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def layer_norm(new: Weights, x: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * new(x.shape[-1]) + new(x.shape[-1])


def root_mean_square_norm(new: Weights, x: Array) -> Array:
    return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * new(x.shape[-1])


def batch_norm(new: Weights, x: Array) -> Array:
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * new(x.shape[-1]) + new(x.shape[-1])


def group_norm(new: Weights, x: Array, groups: int = 8) -> Array:
    parts = x.reshape(*x.shape[:-1], groups, -1)
    mean = parts.mean((1, 2, 4), keepdims=True)
    variance = ((parts - mean) ** 2).mean((1, 2, 4), keepdims=True)
    return ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape) * new(x.shape[-1]) + new(x.shape[-1])


def linear(new: Weights, x: Array, features: int) -> Array:
    return x @ new(x.shape[-1], features) + new(features)


def attention(new: Weights, x: Array, y: Array, heads: int, mask: Array | None = None, bias: Any = 0.0) -> Array:
    """Of the queries in x to the keys in y, both (batch, length, width)."""
    width = x.shape[-1]

    def split(z: Array) -> Array:
        return z.reshape(*z.shape[:2], heads, width // heads).transpose(0, 2, 1, 3)

    q, k, v = split(linear(new, x, width)), split(linear(new, y, width)), split(linear(new, y, width))
    scores = q @ k.swapaxes(2, 3) / (width // heads) ** 0.5 + bias
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    mixed = jax.nn.softmax(scores) @ v
    return linear(new, mixed.transpose(0, 2, 1, 3).reshape(x.shape), width)


def mlp(new: Weights, x: Array, hidden: int) -> Array:
    return linear(new, jax.nn.gelu(linear(new, x, hidden)), x.shape[-1])


def gpt_loss(layers: int, width: int, heads: int, vocabulary: int) -> Loss:
    """A decoder of language, normalised before each block."""

    def loss(new: Weights, words: Array) -> Array:
        length = words.shape[1] - 1
        table = new(vocabulary, width)
        x = table[words[:, :-1]] + new(length, width)
        mask = jnp.tril(jnp.ones((length, length), bool))
        for _ in range(layers):
            y = layer_norm(new, x)
            x = x + attention(new, y, y, heads, mask)
            x = x + mlp(new, layer_norm(new, x), 4 * width)
        return cross_entropy(layer_norm(new, x) @ table.T, words[:, 1:])

    return loss


def t5_loss(layers: int, width: int, heads: int, vocabulary: int) -> Loss:
    """An encoder and a decoder with attention to it, and a bias for each distance."""

    def bias(new: Weights, length: int) -> Array:
        places = jnp.arange(length)
        near = jnp.clip(places[:, None] - places[None], -15, 16) + 15
        return new(32, heads)[near].transpose(2, 0, 1)[None]

    def loss(new: Weights, words: Array, labels: Array) -> Array:
        table = new(vocabulary, width)
        x, y = table[words], table[labels[:, :-1]]
        near_x, near_y = bias(new, x.shape[1]), bias(new, y.shape[1])
        mask = jnp.tril(jnp.ones((y.shape[1], y.shape[1]), bool))
        for _ in range(layers):
            z = root_mean_square_norm(new, x)
            x = x + attention(new, z, z, heads, bias=near_x)
            x = x + mlp(new, root_mean_square_norm(new, x), 4 * width)
        x = root_mean_square_norm(new, x)
        for _ in range(layers):
            z = root_mean_square_norm(new, y)
            y = y + attention(new, z, z, heads, mask, near_y)
            y = y + attention(new, root_mean_square_norm(new, y), x, heads)
            y = y + mlp(new, root_mean_square_norm(new, y), 4 * width)
        return cross_entropy(root_mean_square_norm(new, y) @ table.T, labels[:, 1:])

    return loss


def vit_loss(layers: int, width: int, heads: int, patch: int) -> Loss:
    """A transformer on the patches of images."""

    def loss(new: Weights, images: Array, labels: Array) -> Array:
        x = patches(new, images, patch, width)
        x = x + new(x.shape[1], width)
        for _ in range(layers):
            y = layer_norm(new, x)
            x = x + attention(new, y, y, heads)
            x = x + mlp(new, layer_norm(new, x), 4 * width)
        return cross_entropy(linear(new, layer_norm(new, x).mean(1), 1000), labels)

    return loss


def mixer_loss(layers: int, width: int, patch: int) -> Loss:
    """Dense layers over patches and over channels, by turns."""

    def loss(new: Weights, images: Array, labels: Array) -> Array:
        x = patches(new, images, patch, width)
        for _ in range(layers):
            y = layer_norm(new, x).swapaxes(1, 2)
            x = x + mlp(new, y, 2 * y.shape[-1]).swapaxes(1, 2)
            x = x + mlp(new, layer_norm(new, x), 4 * width)
        return cross_entropy(linear(new, layer_norm(new, x).mean(1), 1000), labels)

    return loss


def patches(new: Weights, images: Array, patch: int, width: int) -> Array:
    """(batch, patches, width)."""
    x = convolve(new, images, width, patch, patch)
    return x.reshape(x.shape[0], -1, width)


def convolve(new: Weights, x: Array, features: int, size: int = 3, stride: int = 1) -> Array:
    """A convolution of (batch, height, width, channels)."""
    weights = new(size, size, x.shape[-1], features)
    return lax.conv_general_dilated(x, weights, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x: Array, size: int, stride: int) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "SAME")


def resnet_loss(blocks: tuple[int, ...], bottleneck: bool) -> Loss:
    """A residual network with batch normalisation, of basic or of bottleneck blocks."""

    def block(new: Weights, x: Array, features: int, stride: int) -> Array:
        wide = 4 * features if bottleneck else features
        if bottleneck:
            y = jax.nn.relu(batch_norm(new, convolve(new, x, features, 1)))
            y = jax.nn.relu(batch_norm(new, convolve(new, y, features, 3, stride)))
            y = batch_norm(new, convolve(new, y, wide, 1))
        else:
            y = jax.nn.relu(batch_norm(new, convolve(new, x, features, 3, stride)))
            y = batch_norm(new, convolve(new, y, wide))
        if x.shape != y.shape:
            x = batch_norm(new, convolve(new, x, wide, 1, stride))
        return jax.nn.relu(x + y)

    def loss(new: Weights, images: Array, labels: Array) -> Array:
        x = max_pool(jax.nn.relu(batch_norm(new, convolve(new, images, 64, 7, 2))), 3, 2)
        for stage, count in enumerate(blocks):
            for place in range(count):
                x = block(new, x, 64 * 2**stage, 2 if stage and not place else 1)
        return cross_entropy(linear(new, x.mean((1, 2)), 1000), labels)

    return loss


def unet_loss(levels: int, width: int) -> Loss:
    """Down and up again with skips, group normalisation and SiLU; the noise of an image is predicted."""

    def block(new: Weights, x: Array, features: int) -> Array:
        y = convolve(new, jax.nn.silu(group_norm(new, x)), features)
        y = convolve(new, jax.nn.silu(group_norm(new, y)), features)
        return y + (x if x.shape == y.shape else convolve(new, x, features, 1))

    def loss(new: Weights, images: Array, noise: Array) -> Array:
        x = convolve(new, images, width)
        skips = []
        for level in range(levels):
            for _ in range(2):
                x = block(new, x, width * 2**level)
                skips.append(x)
            x = convolve(new, x, x.shape[-1], 3, 2)
        x = block(new, x, width * 2**levels)
        for level in reversed(range(levels)):
            x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
            for _ in range(2):
                x = block(new, jnp.concatenate([x, skips.pop()], -1), width * 2**level)
        return ((convolve(new, jax.nn.silu(group_norm(new, x)), 3) - noise) ** 2).mean()

    return loss


def tokens_loss(layers: int, width: int) -> Loss:
    """Attention of one head and a perceptron a layer, of the tokens of one text: no dimension is a batch."""

    def loss(new: Weights, x: Array) -> Array:
        for _ in range(layers):
            query, key, value = (x @ new(width, width) for _ in range(3))
            x = x + jax.nn.softmax(query @ key.T / width**0.5) @ value
            x = x + jax.nn.gelu(x @ new(width, 4 * width)) @ new(4 * width, width)
        return (x**2).mean()

    return loss


def images(batch: int, size: int) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Square images and their labels."""
    return f32(batch, size, size, 3), i32(batch)


STEPS = {
    "gpt": Step(gpt_loss(12, 256, 4, 2048), (i32(4, 513),), (i32(64, 513),)),
    "t5": Step(t5_loss(6, 256, 4, 2048), (i32(4, 384), i32(4, 385)), (i32(64, 384), i32(64, 385))),
    "vit": Step(vit_loss(12, 192, 3, 16), images(16, 224), images(256, 224)),
    "mixer": Step(mixer_loss(8, 256, 16), images(16, 224), images(256, 224)),
    "resnet18": Step(resnet_loss((2, 2, 2, 2), False), images(16, 128), images(64, 224)),
    "resnet50": Step(resnet_loss((3, 4, 6, 3), True), images(8, 128), images(64, 224)),
    "unet": Step(unet_loss(3, 32), (f32(4, 96, 96, 3),) * 2, (f32(64, 256, 256, 3),) * 2),
    "tokens": Step(tokens_loss(3, 128), (f32(4096, 128),), (f32(16384, 128),)),
    "long_gpt": Step(gpt_loss(12, 256, 4, 2048), (i32(1, 2049),), (i32(1, 16385),)),
}


def main() -> None:
    """Write NAME.mlir for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", choices=("middle", "large"), default="middle")
    parser.add_argument("--only", nargs="*", choices=list(STEPS))
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for name in arguments.only or STEPS:
        (arguments.directory / f"{name}.mlir").write_text(STEPS[name].text(arguments.size))


if __name__ == "__main__":
    main()
