"""Programs with jax.random, exported for a CPU and for a GPU: does exla-opt leave both the same memory?

    python -m benchmarks.random_numbers [--old-threefry] [PROGRAM ...]

JAX writes threefry as a loop of five rounds for a CPU and unrolled for a GPU. Both modules are compiled for this
machine's CPU. The limit is arguments + results + the given part of temporary memory. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from exla_opt.runtime.memory import measure_memory  # noqa: E402
from exla_opt.sizes import format_size  # noqa: E402

from .wild.entry import Array, Sizes, bf16, f32, i32, u32  # noqa: E402
from .wild.measure import rewrite  # noqa: E402

KEY = u32(2)


def dropout_gradient(key: Array, x: Array, first: Array, second: Array) -> Array:
    """The gradient of a layer with dropout by its weights. x: [n, d], first: [d, m], second: [m, k]."""

    def loss(first: Array, second: Array) -> Array:
        hidden = jax.nn.relu(x @ first)
        kept = jax.random.bernoulli(key, 0.9, hidden.shape)
        return jnp.where(kept, hidden / 0.9, 0) @ second

    return jax.grad(lambda *weights: (loss(*weights) ** 2).sum(), (0, 1))(first, second)


def attention_with_dropout(key: Array, queries: Array, keys: Array, values: Array) -> Array:
    """The gradient of attention with dropout on its weights, by queries, keys and values, each [n, d]."""

    def loss(queries: Array, keys: Array, values: Array) -> Array:
        weights = jax.nn.softmax(queries @ keys.T / queries.shape[1] ** 0.5)
        kept = jax.random.bernoulli(key, 0.9, weights.shape)
        return (jnp.where(kept, weights / 0.9, 0) @ values).sum()

    return jax.grad(loss, (0, 1, 2))(queries, keys, values)


def option_price(key: Array, spot: Array) -> Array:
    """The mean payoff over a million paths of 256 steps, and its gradient by the spot price, a number."""

    def price(spot: Array) -> Array:
        steps = 0.01 * jax.random.normal(key, (1_000_000, 256))
        return jnp.maximum(spot * jnp.exp(steps.sum(1)) - 1, 0).mean()

    return jax.grad(price)(spot)


def sampled_tokens(key: Array, states: Array, table: Array) -> Array:
    """One token drawn for each row of states, [n, d], from its logits over a vocabulary, table: [v, d]."""
    return jax.random.categorical(key, states @ table.T)


def relaxed_choices(key: Array, logits: Array, codes: Array) -> Array:
    """Codes, [k, d], mixed by a softmax of logits, [n, k], with Gumbel noise: the gradient by both."""

    def loss(logits: Array, codes: Array) -> Array:
        noisy = logits + jax.random.gumbel(key, logits.shape)
        return ((jax.nn.softmax(noisy / 0.5) @ codes) ** 2).sum()

    return jax.grad(loss, (0, 1))(logits, codes)


def noise_in_half_precision(key: Array, x: Array, weights: Array) -> Array:
    """A product of bf16 data, [n, d], with noise on it: [n, k]."""
    return (x + jax.random.normal(key, x.shape, x.dtype)) @ weights


def randomised_labels(key: Array, labels: Array, table: Array) -> Array:
    """The mean over rows of a table, [v, d], that integers drawn at random or the labels, [n], pick."""
    drawn = jax.random.randint(key, (64, labels.shape[0]), 0, table.shape[0])
    kept = jax.random.uniform(jax.random.fold_in(key, 1), drawn.shape) < 0.5
    return jnp.where(kept, drawn, labels).astype(jnp.float32).mean(0)


PROGRAMS: dict[Callable[..., Array], Sizes] = {
    dropout_gradient: (KEY, f32(200_000, 64), f32(64, 2048), f32(2048, 16)),
    attention_with_dropout: (KEY, f32(16_384, 64), f32(16_384, 64), f32(16_384, 64)),
    option_price: (KEY, f32()),
    sampled_tokens: (KEY, f32(8192, 512), f32(50_000, 512)),
    relaxed_choices: (KEY, f32(65_536, 8192), f32(8192, 64)),
    noise_in_half_precision: (KEY, bf16(1_000_000, 512), bf16(512, 16)),
    randomised_labels: (KEY, i32(4_000_000), f32(1000, 4)),
}


def main() -> None:
    """Print one row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=float, default=1 / 16, help="of temporary memory, which the limit leaves [1/16]")
    parser.add_argument("--old-threefry", action="store_true", help="draw as with jax_threefry_partitionable=False")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="those alone, by their functions' names")
    options = parser.parse_args()
    part = options.part
    jax.config.update("jax_threefry_partitionable", not options.old_threefry)
    print("| program | limit | for a CPU | after | for a GPU | after |\n" + "| --- " * 6 + "|")
    for function, sizes in PROGRAMS.items():
        if options.programs and function.__name__ not in options.programs:
            continue
        texts = [_export(function, sizes, platform) for platform in ("cpu", "cuda")]
        memories = [measure_memory(text) for text in texts]
        limit = memories[0].peak - int((1 - part) * memories[0].temp)
        cells = [format_size(limit)]
        for text, memory in zip(texts, memories, strict=True):
            after = measure_memory(rewrite(text, limit, 600)[0])
            cells += [format_size(memory.peak), format_size(after.peak)]
        print(f"| {function.__name__} | {' | '.join(cells)} |", flush=True)


def _export(function: Callable[..., Any], sizes: Sizes, platform: str) -> str:
    return str(jax.export.export(jax.jit(function), platforms=[platform])(*sizes).mlir_module())


if __name__ == "__main__":
    main()
