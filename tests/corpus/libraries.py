"""Layers and training steps of published JAX libraries, where they are installed: flax, equinox, optax.

Each is a function of arrays only, at small shapes: parameters come from the library's own initialisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tests.corpus.arguments import Call

Make = Callable[[], Call]


def _call(function: Callable[..., Any], *arguments: Any) -> Call:
    """A call whose arrays are all leaves of the arguments."""
    leaves, structure = jax.tree.flatten(arguments)
    specs = tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return Call(lambda *arrays: function(*jax.tree.unflatten(structure, arrays)), specs)


def _flax(layer: str, *shape: int, **options: Any) -> Make:
    def make() -> Call:
        from flax import linen

        module = getattr(linen, layer)(**options)
        x = jnp.ones(shape)
        variables = jax.eval_shape(lambda key: module.init(key, x), jax.random.key(0))
        return _call(lambda parameters, given: module.apply(parameters, given), variables, x)

    return make


def _equinox(layer: str, *shape: int, arguments: tuple[Any, ...] = (), times: int = 1) -> Make:
    """times: how many arguments of that shape the layer takes."""

    def make() -> Call:
        import equinox

        module = getattr(equinox.nn, layer)(*arguments, key=jax.random.key(0))
        parameters, rest = equinox.partition(module, equinox.is_inexact_array)
        return _call(
            lambda given, *xs: equinox.combine(given, rest)(*xs), parameters, *(jnp.ones(shape) for _ in range(times))
        )

    return make


def _optax(name: str, *options: Any) -> Make:
    """One step of an optimiser on a least-squares loss."""

    def make() -> Call:
        import optax

        optimiser = getattr(optax, name)(*options)
        weights = {"kernel": jnp.ones((11, 7)), "bias": jnp.ones(7)}
        state = jax.eval_shape(optimiser.init, weights)

        def step(weights: Any, state: Any, x: Any, y: Any) -> Any:
            loss = lambda w: ((jnp.tanh(x @ w["kernel"] + w["bias"]) - y) ** 2).mean()  # noqa: E731
            updates, state = optimiser.update(jax.grad(loss)(weights), state, weights)
            return optax.apply_updates(weights, updates), state

        return _call(step, weights, state, jnp.ones((13, 11)), jnp.ones((13, 7)))

    return make


def _optax_loss(name: str, labels: jax.ShapeDtypeStruct) -> Make:
    def make() -> Call:
        import optax

        return _call(getattr(optax, name), jnp.ones((13, 11)), jnp.ones(labels.shape, labels.dtype))

    return make


_LIKE = jax.ShapeDtypeStruct((13, 11), jnp.float32)
_CLASSES = jax.ShapeDtypeStruct((13,), jnp.int32)

LIBRARIES: dict[str, Make] = {
    "flax.linen.Dense": _flax("Dense", 13, 11, features=7),
    "flax.linen.Conv": _flax("Conv", 2, 9, 8, 3, features=5, kernel_size=(3, 3)),
    "flax.linen.ConvTranspose": _flax("ConvTranspose", 2, 5, 6, 3, features=4, kernel_size=(3, 3), strides=(2, 2)),
    "flax.linen.LayerNorm": _flax("LayerNorm", 13, 11),
    "flax.linen.RMSNorm": _flax("RMSNorm", 13, 11),
    "flax.linen.GroupNorm": _flax("GroupNorm", 2, 9, 12, num_groups=3),
    "flax.linen.MultiHeadDotProductAttention": _flax(
        # The gradient of the keys' bias is zero, and rounding alone.
        "MultiHeadDotProductAttention",
        2,
        9,
        12,
        num_heads=3,
        deterministic=True,
        use_bias=False,
    ),
    "equinox.nn.Linear": _equinox("Linear", 11, arguments=(11, 37)),
    "equinox.nn.MLP": _equinox("MLP", 11, arguments=(11, 7, 37, 2)),
    "equinox.nn.Conv2d": _equinox("Conv2d", 3, 9, 8, arguments=(3, 5, 3)),
    "equinox.nn.MultiheadAttention": _equinox("MultiheadAttention", 9, 12, arguments=(3, 12), times=3),
    "optax.adam": _optax("adam", 1e-2),
    "optax.adafactor": _optax("adafactor", 1e-2),
    "optax.lamb": _optax("lamb", 1e-2),
    "optax.lion": _optax("lion", 1e-2),
    "optax.sgd": _optax("sgd", 1e-2, 0.9),
    "optax.sigmoid_binary_cross_entropy": _optax_loss("sigmoid_binary_cross_entropy", _LIKE),
    "optax.softmax_cross_entropy": _optax_loss("softmax_cross_entropy", _LIKE),
    "optax.softmax_cross_entropy_with_integer_labels": _optax_loss(
        "softmax_cross_entropy_with_integer_labels", _CLASSES
    ),
}
