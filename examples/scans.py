"""Programs with loops of their own, as StableHLO: training steps over scans, recurrent nets, solvers, random numbers.

    python examples/scans.py gpt_scan -o gpt_scan.mlir
    python examples/scans.py lstm --size=small | exla-opt --memory-limit=100MB > smaller.mlir

`large` sizes are those of docs/results.md, `middle` ones run on a laptop, `small` ones in tests.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

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
class Gpt:
    """The sizes of a decoder-only transformer and of a batch of its training."""

    layers: int
    batch: int
    tokens: int
    width: int
    heads: int
    words: int


_GPT = {
    "small": Gpt(2, 2, 8, 16, 2, 30),
    "middle": Gpt(6, 4, 256, 256, 4, 2000),
    "large": Gpt(12, 16, 1024, 768, 12, 50257),
}
_LONG = {
    "small": Gpt(2, 1, 16, 16, 2, 30),
    "middle": Gpt(6, 1, 1024, 256, 4, 2000),
    "large": Gpt(12, 1, 16384, 768, 12, 50257),
}


def normalised(x: Array) -> Array:
    """Each row with mean 0 and variance 1."""
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def decoder_layer(x: Array, layer: Tree, heads: int, key: Array | None) -> Array:
    """One layer on (batch, tokens, width). key: for dropout of a tenth, if any."""
    batch, tokens, width = x.shape
    hidden = normalised(x) @ layer["qkv"]
    q, k, v = (jnp.swapaxes(part.reshape(batch, tokens, heads, -1), 1, 2) for part in jnp.split(hidden, 3, -1))
    scores = (q @ jnp.swapaxes(k, 2, 3)) / math.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e9)
    attention = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
    if key is not None:
        attention = jnp.where(jax.random.bernoulli(key, 0.9, attention.shape), attention / 0.9, 0)
    x = x + jnp.swapaxes(attention @ v, 1, 2).reshape(x.shape) @ layer["out"]
    added: Array = jax.nn.gelu(normalised(x) @ layer["up"]) @ layer["down"]
    return x + added


def gpt(
    size: Gpt, *, scanned: bool = True, dropout: bool = False, dtype: Any = jnp.float32, picked: str = "one hot"
) -> Program:
    """A training step by stochastic gradient descent; the parameters are donated.

    scanned: whether the layers are scanned, or written one by one. picked: how the loss picks the labels' logarithms.
    """

    def logits(parameters: Tree, tokens: Array, key: Array) -> Array:
        table, layers = parameters
        table, layers = jax.tree.map(lambda leaf: leaf.astype(dtype), (table, layers))
        keys = jax.random.split(key, size.layers)

        def body(x: Array, given: tuple[Tree, Array]) -> tuple[Array, None]:
            layer, layer_key = given
            return decoder_layer(x, layer, size.heads, layer_key if dropout else None), None

        x = table[tokens]
        if scanned:
            x, _ = lax.scan(body, x, (layers, keys))
        else:
            for number in range(size.layers):
                x, _ = body(x, jax.tree.map(lambda leaf, number=number: leaf[number], (layers, keys)))
        made: Array = normalised(x) @ table.T
        return made.astype(jnp.float32)

    def loss(parameters: Tree, tokens: Array, labels: Array, key: Array) -> Array:
        logs = jax.nn.log_softmax(logits(parameters, tokens, key))
        if picked == "take_along_axis":
            return -jnp.take_along_axis(logs, labels[..., None], -1).mean()
        return -(jax.nn.one_hot(labels, size.words) * logs).sum(-1).mean()

    def step(parameters: Tree, tokens: Array, labels: Array, key: Array) -> Tree:
        gradient = jax.grad(loss)(parameters, tokens, labels, key)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradient)

    width = size.width
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    layers = {name: of(size.layers, *shape) for name, shape in shapes.items()}
    tokens = of(size.batch, size.tokens, dtype=jnp.int32)
    return Program(step, ((of(size.words, width), layers), tokens, tokens, of(2, dtype=jnp.uint32)), (0,))


def recurrent(steps: int, batch: int, width: int, *, gated: bool) -> Program:
    """The gradient of a sum of squares over the last state of an LSTM, or of a GRU (gated)."""

    def lstm(weights: Array, state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], None]:
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([x, h], 1) @ weights, 4, axis=1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    def gru(weights: Array, h: Array, x: Array) -> tuple[Array, None]:
        z, r = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h], 1) @ weights[:, : 2 * width]), 2, axis=1)
        new = jnp.tanh(jnp.concatenate([x, r * h], 1) @ weights[:, 2 * width :])
        return (1 - z) * h + z * new, None

    def loss(weights: Array, xs: Array) -> Array:
        start = jnp.zeros((batch, width))
        if gated:
            return (lax.scan(lambda h, x: gru(weights, h, x), start, xs)[0] ** 2).sum()
        return (lax.scan(lambda s, x: lstm(weights, s, x), (start, start), xs)[0][0] ** 2).sum()

    inputs = max(width // 8, 1)
    return Program(jax.grad(loss), (of(inputs + width, (3 if gated else 4) * width), of(steps, batch, inputs)))


def sums_of_products(steps: int, n: int) -> Program:
    """The gradient of a scan whose residual is an outer sum of its inputs, which costs nothing to have again."""

    def body(carry: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
        y, z = given
        return carry + jnp.sin(y[:, None] + z).sum(), None

    def loss(ys: Array, z: Array) -> Array:
        return lax.scan(lambda c, y: body(c, (y, z)), jnp.zeros(()), ys)[0]

    return Program(jax.grad(loss), (of(steps, n), of(n)))


def sinkhorn(iterations: int, n: int, *, scanned: bool = True) -> Program:
    """The gradient of the entropic cost of transport between two clouds of points, iterations in the log domain.

    scanned: whether the iterations are scanned, or written one by one.
    """

    def cost(x: Array, y: Array) -> Array:
        distances = ((x[:, None] - y) ** 2).sum(-1)

        def body(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            f, g = state
            f = -0.1 * jax.nn.logsumexp((g - distances) / 0.1, axis=1)
            g = -0.1 * jax.nn.logsumexp((f[:, None] - distances) / 0.1, axis=0)
            return (f, g), None

        state = jnp.zeros(n), jnp.zeros(n)
        if scanned:
            state, _ = lax.scan(body, state, None, length=iterations)
        else:
            for _ in range(iterations):
                state, _ = body(state, None)
        return (state[0] + state[1]).mean()

    return Program(jax.grad(cost), (of(n, 3), of(n, 3)))


def neural_ode(steps: int, batch: int, width: int) -> Program:
    """The gradient of a neural differential equation that is solved by Runge-Kutta steps of order 4."""

    def field(weights: Array, x: Array) -> Array:
        return jnp.tanh(x @ weights[0]) @ weights[1]

    def loss(weights: Array, x: Array) -> Array:
        def body(x: Array, _: None) -> tuple[Array, None]:
            h = 1.0 / steps
            a = field(weights, x)
            b = field(weights, x + h / 2 * a)
            c = field(weights, x + h / 2 * b)
            d = field(weights, x + h * c)
            return x + h / 6 * (a + 2 * b + 2 * c + d), None

        return (lax.scan(body, x, None, length=steps)[0] ** 2).sum()

    return Program(jax.grad(loss), (of(2, width, width), of(batch, width)))


def normal_squares(rows: int, columns: int) -> Program:
    """The mean of the squares of normal draws."""
    return Program(lambda key: (jax.random.normal(key, (rows, columns)) ** 2).mean(), (of(2, dtype=jnp.uint32),))


def ctc(batch: int, steps: int, words: int, length: int) -> Program:
    """The gradient of the connectionist temporal classification loss of logits for labels of one length."""

    def loss(logits: Array, labels: Array) -> Array:
        logs = jax.nn.log_softmax(logits)
        extended = jnp.zeros((batch, 2 * length + 1), jnp.int32).at[:, 1::2].set(labels)
        skips = jnp.pad(labels[:, 1:] != labels[:, :-1], ((0, 0), (1, 0)))
        may_skip = jnp.zeros((batch, 2 * length + 1), bool).at[:, 1::2].set(skips)
        emitted = jnp.take_along_axis(logs, jnp.broadcast_to(extended[:, None], (batch, steps, 2 * length + 1)), -1)
        start = jnp.full((batch, 2 * length + 1), -1e5).at[:, :2].set(emitted[:, 0, :2])

        def body(alpha: Array, given: Array) -> tuple[Array, None]:
            one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e5)
            two = jnp.where(may_skip, jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=-1e5), -1e5)
            return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + given, None

        alpha, _ = lax.scan(body, start, jnp.moveaxis(emitted[:, 1:], 1, 0))
        return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()

    return Program(jax.grad(loss), (of(batch, steps, words), of(batch, length, dtype=jnp.int32)))


PROGRAMS: dict[str, Callable[[str], Program]] = {
    "gpt_scan": lambda size: gpt(_GPT[size]),
    "gpt_unrolled": lambda size: gpt(_GPT[size], scanned=False),
    "gpt_unrolled_long": lambda size: gpt(_LONG[size], scanned=False),
    "gpt_unrolled_bf16": lambda size: gpt(_GPT[size], scanned=False, dtype=jnp.bfloat16),
    "gpt_scan_dropout": lambda size: gpt(_GPT[size], dropout=True),
    "gpt_scan_bf16": lambda size: gpt(_GPT[size], dtype=jnp.bfloat16),
    "gpt_scan_picked": lambda size: gpt(_GPT[size], picked="take_along_axis"),
    "gpt_scan_long": lambda size: gpt(_LONG[size]),
    "lstm": lambda size: recurrent(*_sized(size, (20, 4, 8), (256, 32, 128), (4096, 256, 1024)), gated=False),
    "gru": lambda size: recurrent(*_sized(size, (20, 4, 8), (256, 32, 128), (4096, 256, 1024)), gated=True),
    "sums": lambda size: sums_of_products(*_sized(size, (5, 20), (20, 1000), (10, 6800))),
    "sinkhorn": lambda size: sinkhorn(*_sized(size, (4, 30), (10, 1000), (10, 9000))),
    "sinkhorn_unrolled": lambda size: sinkhorn(*_sized(size, (12, 30), (10, 1000), (10, 9000)), scanned=False),
    "neural_ode": lambda size: neural_ode(*_sized(size, (20, 4, 8), (100, 256, 64), (500, 4096, 256))),
    "normal_squares": lambda size: normal_squares(*_sized(size, (60, 50), (3000, 1500), (3000, 1500))),
    "ctc": lambda size: ctc(*_sized(size, (3, 12, 10, 4), (16, 300, 200, 30), (64, 1500, 1000, 100))),
}


def _sized(size: str, *given: tuple[int, ...]) -> tuple[int, ...]:
    return dict(zip(SIZES, given, strict=True))[size]


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
