"""Layers of equinox: written for one example and mapped over a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .programs import KEY, Array, Example, Field, Tree, f32, i32, shape

FIELD = Field()


def taken_apart(make: Callable[[Array], Any]) -> tuple[Tree, Any]:
    """A model's arrays as shapes, and the rest of it."""
    model = eqx.filter_eval_shape(make, jax.random.PRNGKey(0))
    return eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))


def gradient_of(make: Callable[[Array], Any], score: Callable[..., Array], *batch: Tree) -> Example:
    """The gradient of score(model, ...) in the model's arrays."""
    arrays, rest = taken_apart(make)
    return jax.grad(lambda a, *batch: score(eqx.combine(a, rest), *batch)), (arrays, *batch)


@FIELD.make
def equinox_perceptron_adam() -> Example:
    """A step of Adam on a multi-layer perceptron."""
    arrays, rest = taken_apart(lambda key: eqx.nn.MLP(128, 10, 1024, 4, key=key))
    optimiser = optax.adam(1e-3)
    state = jax.eval_shape(optimiser.init, arrays)

    def step(arrays: Tree, state: Tree, x: Array, labels: Array) -> tuple[Tree, Tree]:
        def loss(arrays: Tree) -> Array:
            logits = jax.vmap(eqx.combine(arrays, rest))(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        updates, new = optimiser.update(jax.grad(loss)(arrays), state)
        return optax.apply_updates(arrays, updates), new

    return step, (arrays, state, f32(16384, 128), i32(16384))


@FIELD.make
def equinox_attention_gradient() -> Example:
    """The gradient of multi-head attention mapped over a batch."""
    return gradient_of(
        lambda key: eqx.nn.MultiheadAttention(8, 256, key=key),
        lambda model, x: (jax.vmap(lambda x: model(x, x, x))(x) ** 2).mean(),
        f32(8, 1024, 256),
    )


@FIELD.make
def equinox_convolution_gradient() -> Example:
    """The gradient of convolution, group normalisation, max pooling and a linear layer."""

    def make(key: Array) -> Any:
        return eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(3, 32, 3, padding=1, key=key),
                eqx.nn.GroupNorm(8, 32),
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.MaxPool2d(2, 2),
                eqx.nn.Conv2d(32, 64, 3, stride=2, key=key),
                eqx.nn.Lambda(lambda x: x.mean((1, 2))),
                eqx.nn.Linear(64, 10, key=key),
            ]
        )

    return gradient_of(make, lambda model, x: (jax.vmap(model)(x) ** 2).mean(), f32(64, 3, 96, 96))


@FIELD.make
def equinox_gru_gradient() -> Example:
    """The gradient of a gated cell scanned over time, mapped over a batch."""

    def score(cell: Any, x: Array) -> Array:
        def run(x: Array) -> Array:
            return jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(256), x)[0]

        return (jax.vmap(run)(x) ** 2).mean()

    return gradient_of(lambda key: eqx.nn.GRUCell(64, 256, key=key), score, f32(128, 300, 64))


@FIELD.make
def equinox_dropout_embedding_gradient() -> Example:
    """The gradient of an embedding with layer normalisation and dropout."""

    def make(key: Array) -> Any:
        return eqx.nn.Embedding(50_000, 256, key=key), eqx.nn.LayerNorm(256), eqx.nn.Dropout(0.2)

    def score(model: Any, tokens: Array, key: Array) -> Array:
        table, normal, drop = model
        x = jax.vmap(jax.vmap(lambda token: normal(table(token))))(tokens)
        return (drop(x, key=key).sum(1) ** 2).mean()

    return gradient_of(make, score, i32(256, 256), KEY)


@FIELD.make
def equinox_wide_stack_forward() -> Example:
    """A stack of layers made by vmap and applied by scan."""

    def make(key: Array) -> Any:
        return eqx.filter_vmap(lambda key: eqx.nn.Linear(1024, 1024, key=key))(jax.random.split(key, 16))

    arrays, rest = taken_apart(make)

    def run(arrays: Tree, x: Array) -> Array:
        def body(x: Array, layer: Tree) -> tuple[Array, None]:
            return x + jax.nn.gelu(jax.vmap(eqx.combine(layer, rest))(x)), None

        return jax.lax.scan(body, x, arrays)[0]

    return run, (arrays, shape(jnp.float32, 8192, 1024))
