"""Products that form a matrix of 1 GB only to multiply, sum or discard most of it; writes them as StableHLO.

python examples/products.py DIRECTORY
exla-opt DIRECTORY/product_vector_16000x64.mlir --passes=normalise,matrix-chain-order
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

POINTS, FEATURES = 16_000, 64


def vector(a: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
    """(A B') v."""
    return (a @ b.T) @ v


def diagonal(a: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
    """The diagonal of A B', times v element by element."""
    return jnp.diag(a @ b.T) * v


def trace(a: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
    """The trace of A B'; v is not asked for."""
    return jnp.trace(a @ b.T) + v[0]


PROGRAMS: tuple[Callable[[jax.Array, jax.Array, jax.Array], jax.Array], ...] = (vector, diagonal, trace)


def main() -> None:
    """Write every program to a file of its own."""
    directory = Path(sys.argv[1])
    kinds = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((POINTS, FEATURES), (POINTS, FEATURES), (POINTS,))]
    for program in PROGRAMS:
        path = directory / f"product_{program.__name__}_{POINTS}x{FEATURES}.mlir"
        path.write_text(jax.jit(program).lower(*kinds).as_text())


if __name__ == "__main__":
    main()
