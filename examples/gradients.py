"""Programs whose results are large gradients of weights, as StableHLO: losses over a vocabulary, dense layers.

    python examples/gradients.py cross_entropy -o cross_entropy.mlir
    python examples/gradients.py mlp --size=small | exla-opt --size-threshold=10KB > smaller.mlir

`large` sizes are those of docs/results.md, `middle` ones run on a laptop, `small` ones in tests.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

Array = jax.Array
Tree = Any
SIZES = ("small", "middle", "large")


@dataclass(frozen=True, slots=True)
class Program:
    """function: what is exported. arguments: shapes and types. donated: the arguments that it may write over."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """A tensor's shape and type."""
    return jax.ShapeDtypeStruct(shape, dtype)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of a batch, the width of a layer, and the words of a vocabulary or the width of a hidden layer."""

    tokens: int
    width: int
    words: int


# The large one is that of "Cut Your Losses in Large-Vocabulary Language Models" (arXiv:2411.09009).
_SIZES = {"small": Sizes(24, 6, 40), "middle": Sizes(1024, 256, 16000), "large": Sizes(8192, 2304, 256000)}
_HIDDEN = {"small": Sizes(24, 6, 16), "middle": Sizes(8192, 256, 1024), "large": Sizes(262144, 2048, 8192)}


def picked_loss(logits: Array, labels: Array) -> Array:
    """The mean cross entropy of rows of logits, in f32 whatever they are."""
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
    mean: Array = (jax.nn.logsumexp(logits, -1) - picked).mean()
    return mean


def descend(rate: float, parameters: Tree, gradient: Tree) -> Tree:
    """A step of gradient descent."""
    return jax.tree.map(lambda p, g: p - rate * g.astype(p.dtype), parameters, gradient)


def adam(parameters: Tree, moments: Tree, gradient: Tree) -> tuple[Tree, Tree]:
    """A step of Adam (Kingma and Ba, ICLR 2015) without the correction of its first steps."""
    first, second = moments
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    parameters = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), parameters, first, second)
    return parameters, (first, second)


def cross_entropy(
    size: Sizes,
    *,
    update: str = "gradient",
    donated: bool = True,
    tied: bool = False,
    dtype: Any = jnp.float32,
) -> Program:
    """The classifier of a language model: a gradient, or a step of "sgd" or "adam" on its weights (width, words).

    tied: the weights are (words, width), and the embedding of the tokens that are classified as well.
    dtype: in which the logits are made.
    """

    def loss(weights: Array, x: Array, labels: Array) -> Array:
        if tied:
            x, weights = jnp.tanh(weights[x]), weights.T
        return picked_loss(x.astype(dtype) @ weights.astype(dtype), labels)

    def gradient(weights: Array, x: Array, labels: Array) -> Tree:
        return jax.grad(loss, 0 if tied else (0, 1))(weights, x, labels)

    def sgd(weights: Array, x: Array, labels: Array) -> Tree:
        return descend(0.01, weights, jax.grad(loss)(weights, x, labels))

    def by_adam(weights: Array, moments: Tree, x: Array, labels: Array) -> Tree:
        return adam(weights, moments, jax.grad(loss)(weights, x, labels))

    weights = of(size.words, size.width) if tied else of(size.width, size.words)
    labels = of(size.tokens, dtype=jnp.int32)
    x = labels if tied else of(size.tokens, size.width)
    if update == "adam":
        return Program(by_adam, (weights, (weights, weights), x, labels), (0, 1) if donated else ())
    if update == "sgd":
        return Program(sgd, (weights, x, labels), (0,) if donated else ())
    return Program(gradient, (weights, x, labels))


def mlp(size: Sizes, *, update: bool = False) -> Program:
    """The gradient of two dense layers with biases by their weights, or a step of gradient descent on them."""

    def loss(weights: Tree, x: Array) -> Array:
        hidden = jax.nn.relu(x @ weights["up"] + weights["bias"])
        error: Array = x + hidden @ weights["down"].T
        return jnp.mean(error**2)

    def step(weights: Tree, x: Array) -> Tree:
        gradient = jax.grad(loss)(weights, x)
        return descend(0.01, weights, gradient) if update else gradient

    weights = {"up": of(size.width, size.words), "down": of(size.width, size.words), "bias": of(size.words)}
    return Program(step, (weights, of(size.tokens, size.width)), (0,) if update else ())


PROGRAMS: dict[str, Callable[[str], Program]] = {
    "cross_entropy": lambda size: cross_entropy(_SIZES[size]),
    "cross_entropy_bf16": lambda size: cross_entropy(_SIZES[size], dtype=jnp.bfloat16),
    "cross_entropy_sgd": lambda size: cross_entropy(_SIZES[size], update="sgd"),
    "cross_entropy_sgd_kept": lambda size: cross_entropy(_SIZES[size], update="sgd", donated=False),
    "cross_entropy_sgd_bf16": lambda size: cross_entropy(_SIZES[size], update="sgd", dtype=jnp.bfloat16),
    "cross_entropy_adam": lambda size: cross_entropy(_SIZES[size], update="adam"),
    "cross_entropy_tied": lambda size: cross_entropy(_SIZES[size], tied=True),
    "cross_entropy_tied_sgd": lambda size: cross_entropy(_SIZES[size], tied=True, update="sgd"),
    "mlp": lambda size: mlp(_HIDDEN[size]),
    "mlp_sgd": lambda size: mlp(_HIDDEN[size], update=True),
}


def text_of(name: str, size: str) -> str:
    """The module of a program, as text. Raises KeyError for an unknown name or size."""
    program = PROGRAMS[name](size)
    return str(jax.jit(program.function, donate_argnums=program.donated).lower(*program.arguments).as_text())


def main() -> None:
    """Write one module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("-o", "--output", type=argparse.FileType("w"), default=sys.stdout)
    arguments = parser.parse_args()
    arguments.output.write(text_of(arguments.name, arguments.size))


if __name__ == "__main__":
    main()
