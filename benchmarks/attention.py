"""Multi-head softmax attention and its gradient, exported from JAX for the benchmarks."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp

HEADS, LENGTH, WIDTH = 4, 2048, 64


def attention(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Softmax attention: three arrays of (HEADS, LENGTH, WIDTH) to one of the same shape."""
    scores = jnp.einsum("hqd,hkd->hqk", queries, keys) / jnp.sqrt(jnp.float32(WIDTH))
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), values)


def loss(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """The sum of the squared outputs."""
    return jnp.sum(attention(queries, keys, values) ** 2)


def export_attention(directory: Path) -> list[Path]:
    """Write the forward pass and the gradient to `directory`, one StableHLO module each; return the two paths."""
    operand = jax.ShapeDtypeStruct((HEADS, LENGTH, WIDTH), jnp.float32)
    size = f"{HEADS}x{LENGTH}x{WIDTH}"
    functions = {
        f"attention_{size}_forward": jax.jit(attention),
        f"attention_{size}_gradient": jax.jit(jax.grad(loss, argnums=(0, 1, 2))),
    }
    paths = []
    for name, function in functions.items():
        paths.append(directory / f"{name}.mlir")
        paths[-1].write_text(function.lower(operand, operand, operand).as_text())
    return paths
