"""Models of flax, with its older interface linen and its newer one nnx."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from .programs import KEY, Array, Example, Field, Tree, f32, i32, shape

FIELD = Field()


def trained(model: nn.Module, *batch: Any, optimiser: Any = None, **given: Any) -> Example:
    """A training step of a linen model on (inputs..., labels), with dropout and batch statistics."""
    *inputs, labels = batch
    optimiser = optimiser or optax.adamw(1e-3)

    def initialise(key: Array) -> tuple[Tree, Tree]:
        zeros = [jnp.zeros(each.shape, each.dtype) for each in inputs]
        variables = model.init({"params": key, "dropout": key}, *zeros, **given)
        return variables, optimiser.init(variables["params"])

    variables, state = jax.eval_shape(initialise, jax.random.PRNGKey(0))

    def step(variables: Tree, state: Tree, key: Array, *batch: Array) -> tuple[Tree, Tree, Array]:
        *inputs, labels = batch
        rest = {name: each for name, each in variables.items() if name != "params"}

        def loss(parameters: Tree) -> tuple[Array, Tree]:
            every = {"params": parameters, **rest}
            logits, new = model.apply(every, *inputs, rngs={"dropout": key}, mutable=list(rest), **given)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

        (value, new), gradient = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        updates, state = optimiser.update(gradient, state, variables["params"])
        return {"params": optax.apply_updates(variables["params"], updates), **new}, state, value

    return step, (variables, state, KEY, *inputs, labels)


class Perceptron(nn.Module):
    """Dense layers with dropout between."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for width in self.widths[:-1]:
            x = nn.relu(nn.Dense(width)(x))
            x = nn.Dropout(0.3, deterministic=False)(x)
        return nn.Dense(self.widths[-1])(x)


class Residual(nn.Module):
    """A residual network of three stages with batch or group normalisation."""

    normal: Callable[[], nn.Module]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Conv(32, (3, 3))(x)
        for width in (32, 64, 128):
            y = nn.relu(self.normal()(x))
            y = nn.Conv(width, (3, 3), strides=2, use_bias=False)(y)
            y = nn.Conv(width, (3, 3), use_bias=False)(nn.relu(self.normal()(y)))
            x = nn.Conv(width, (1, 1), strides=2)(x) + y
        return nn.Dense(100)(x.mean((1, 2)))


class Encoder(nn.Module):
    """A transformer encoder."""

    depth: int
    heads: int
    drop: float = 0.1

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        x = nn.Embed(10_000, 256)(tokens)
        for _ in range(self.depth):
            y = nn.LayerNorm()(x)
            x = x + nn.SelfAttention(self.heads, dropout_rate=self.drop, deterministic=False)(y)
            y = nn.Dense(1024)(nn.LayerNorm()(x))
            x = x + nn.Dense(256)(nn.gelu(y))
        return nn.Dense(20)(x.mean(1))


class Tagger(nn.Module):
    """A recurrent network of two directions that labels each token."""

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        x = nn.Embed(20_000, 128)(tokens)
        x = nn.Bidirectional(nn.RNN(nn.LSTMCell(256)), nn.RNN(nn.LSTMCell(256)))(x)
        return nn.Dense(50)(x)


class Pooled(nn.Module):
    """A plain convolutional network with max and mean pooling."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for width in (64, 128):
            x = nn.relu(nn.Conv(width, (3, 3))(x))
            x = nn.relu(nn.Conv(width, (3, 3))(x))
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1))))


@FIELD.make
def linen_perceptron_step() -> Example:
    """Dense layers on a large batch."""
    return trained(Perceptron((2048, 2048, 100)), f32(16384, 512), i32(16384))


@FIELD.make
def linen_residual_batch_norm_step() -> Example:
    """A residual network whose batch statistics move along."""
    norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9)
    return trained(Residual(norm), f32(64, 96, 96, 3), i32(64), optimiser=optax.sgd(0.1, momentum=0.9))


@FIELD.make
def linen_residual_group_norm_step() -> Example:
    """The same with group normalisation."""
    return trained(Residual(partial(nn.GroupNorm, num_groups=8)), f32(64, 96, 96, 3), i32(64))


@FIELD.make
def linen_encoder_step() -> Example:
    """A transformer encoder with dropout on the attention."""
    return trained(Encoder(4, 8), i32(16, 512), i32(16))


@FIELD.make
def linen_tagger_step() -> Example:
    """An LSTM of both directions."""
    return trained(Tagger(), i32(64, 200), i32(64, 200))


@FIELD.make
def linen_pooled_step() -> Example:
    """A plain convolutional network."""
    return trained(Pooled(), f32(128, 64, 64, 3), i32(128), optimiser=optax.rmsprop(1e-3))


@FIELD.make
def linen_encoder_evaluation() -> Example:
    """An encoder without training, on a long text."""
    model = Encoder(6, 8, 0.0)
    variables = jax.eval_shape(model.init, jax.random.PRNGKey(0), jnp.zeros((2, 4096), jnp.int32))
    return lambda v, x: nn.softmax(model.apply(v, x)), (variables, i32(2, 4096))


@FIELD.make
def linen_depthwise_bf16() -> Example:
    """Depthwise and pointwise convolutions computed in bfloat16 from float32 weights."""

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            for _ in range(4):
                y = nn.Conv(64, (7, 7), feature_group_count=64, dtype=jnp.bfloat16)(x)
                y = nn.Dense(256, dtype=jnp.bfloat16)(nn.LayerNorm(dtype=jnp.bfloat16)(y))
                x = x + nn.Dense(64, dtype=jnp.bfloat16)(nn.gelu(y))
            return x.mean((1, 2))

    model = Model()
    image = shape(jnp.bfloat16, 32, 64, 64, 64)
    variables = jax.eval_shape(model.init, jax.random.PRNGKey(0), image)
    return model.apply, (variables, image)


def split_nnx(make: Callable[[nnx.Rngs], nnx.Module]) -> tuple[Any, Tree]:
    """The graph of an nnx model and the shapes of its state."""
    graph, state = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return graph, jax.tree.map(lambda x: shape(x.dtype, *x.shape), state)


class Mixer(nnx.Module):
    """A mixer over patches and channels."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(48, 256, rngs=rngs)
        self.across = nnx.Linear(256, 256, rngs=rngs)
        self.along = nnx.Linear(256, 1024, rngs=rngs)
        self.back = nnx.Linear(1024, 256, rngs=rngs)
        self.one = nnx.LayerNorm(256, rngs=rngs)
        self.two = nnx.LayerNorm(256, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = self.first(x)
        x = x + self.across(self.one(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + self.back(nnx.gelu(self.along(self.two(x))))


@FIELD.make
def nnx_mixer_step() -> Example:
    """A step of a mixer by plain gradient descent."""
    graph, state = split_nnx(Mixer)

    def step(state: Tree, x: Array) -> Tree:
        slope = jax.grad(lambda s: (nnx.merge(graph, s)(x) ** 2).mean())(state)
        return jax.tree.map(lambda a, b: a - 0.1 * b, state, slope)

    return step, (state, f32(64, 256, 48))


@FIELD.make
def nnx_attention_forward() -> Example:
    """Multi-head attention of nnx on a long sequence."""
    graph, state = split_nnx(lambda rngs: nnx.MultiHeadAttention(8, 512, 512, decode=False, rngs=rngs))
    return lambda s, x: nnx.merge(graph, s)(x), (state, f32(2, 4096, 512))


@FIELD.make
def nnx_convolution_gradient() -> Example:
    """The gradient of two convolutions with an activation by hand."""

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.one = nnx.Conv(16, 64, (5, 5), rngs=rngs)
            self.two = nnx.ConvTranspose(64, 16, (3, 3), strides=(2, 2), rngs=rngs)

        def __call__(self, x: Array) -> Array:
            return self.two(nnx.silu(self.one(x)))

    graph, state = split_nnx(Model)
    return jax.grad(lambda s, x: jnp.abs(nnx.merge(graph, s)(x)).mean()), (state, f32(16, 128, 128, 16))
