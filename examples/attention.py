"""Softmax attention as a user writes it, exported from JAX to StableHLO: writes attention.mlir next to this file.

The arguments and the result are 1 MB each; between them stands the score matrix, 4096 x 4096 floats or 67 MB.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp

LENGTH = 4096
WIDTH = 64


def attention(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Softmax attention of one head: three arrays of (LENGTH, WIDTH) to one of the same shape."""
    scores = queries @ keys.T / jnp.sqrt(jnp.float32(WIDTH))
    return jax.nn.softmax(scores, axis=-1) @ values


def main() -> None:
    """Export the module."""
    operand = jax.ShapeDtypeStruct((LENGTH, WIDTH), jnp.float32)
    lowered = jax.jit(attention).lower(operand, operand, operand)
    Path(__file__).with_suffix(".mlir").write_text(lowered.as_text())


if __name__ == "__main__":
    main()
