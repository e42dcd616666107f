"""What a call of `exla_opt.jit` costs, and one of `jax.jit`, and the memory of a gradient outside of it.

python benchmarks/jit.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import exla_opt

TOKENS, WIDTH = 2048, 64


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T / 8, axis=-1) @ v


def loss(call: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda *given: jnp.sum(call(*given) ** 2)


def microseconds(call: Callable[..., Any], given: list[jax.Array]) -> float:
    """The least of ten rounds of a thousand calls."""
    jax.block_until_ready(call(*given))
    return min(timeit.repeat(lambda: call(*given), number=1000, repeat=10)) * 1e3


def temp(function: Any, given: list[jax.Array]) -> float:
    """Megabytes of temporaries."""
    return float(function.lower(*given).compile().memory_analysis().temp_size_in_bytes) / 1e6


def main() -> None:
    print(f"jax {jax.__version__}\n\n| arguments | jax.jit, us | exla_opt.jit, us |\n| --- | --- | --- |")
    for count in (1, 3, 30):
        given = [jnp.ones(4)] * count
        calls = [make(lambda *x: sum(x)) for make in (jax.jit, exla_opt.jit)]
        print(f"| {count} | {' | '.join(f'{microseconds(call, given):.1f}' for call in calls)} |")
    given = [jax.random.normal(jax.random.key(seed), (TOKENS, WIDTH)) for seed in range(3)]
    sizes: dict[str, Any] = {"size_threshold": "1MB", "split_size": "1MB"}
    by = (0, 1, 2)
    forms = {
        "jax.jit(jax.grad(f))": jax.jit(jax.grad(loss(attention), by)),
        "exla_opt.jit(jax.grad(f))": exla_opt.jit(jax.grad(loss(attention), by), **sizes),
        "jax.grad of exla_opt.jit(f)": jax.jit(jax.grad(exla_opt.jit(loss(attention), **sizes), by)),
    }
    print(f"\n| attention of {TOKENS} tokens, gradient | temp, MB |\n| --- | --- |")
    for name, function in forms.items():
        print(f"| {name} | {temp(function, given):.2f} |")


if __name__ == "__main__":
    main()
