"""Multi-head softmax attention and its gradient, exported from JAX for the benchmarks.

python benchmarks/attention.py DIRECTORY --shape=16x16384x128 --dtype=bfloat16 --platform=cuda
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp

HEADS, LENGTH, WIDTH = 4, 2048, 64
PLATFORMS = ("cpu", "cuda")


def main() -> None:
    """Write both modules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--shape", default=f"{HEADS}x{LENGTH}x{WIDTH}", help="heads x length x width [%(default)s]")
    parser.add_argument("--dtype", default="float32", help="[%(default)s]")
    parser.add_argument("--platform", choices=PLATFORMS, default="cpu", help="what the modules are for [%(default)s]")
    arguments = parser.parse_args()
    heads, length, width = (int(size) for size in arguments.shape.split("x"))
    export_attention(arguments.directory, (heads, length, width), arguments.dtype, arguments.platform)


def attention(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Softmax attention: three arrays of (heads, length, width) to one of the same shape."""
    scores = jnp.einsum("hqd,hkd->hqk", queries, keys) / jnp.sqrt(jnp.asarray(queries.shape[-1], queries.dtype))
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), values)


def loss(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """The sum of the squared outputs, in float32."""
    return jnp.sum(attention(queries, keys, values).astype(jnp.float32) ** 2)


def export_attention(
    directory: Path,
    shape: tuple[int, int, int] = (HEADS, LENGTH, WIDTH),
    dtype: str = "float32",
    platform: str = "cpu",
) -> list[Path]:
    """Write the forward pass and the gradient to `directory`, one StableHLO module each; return the two paths.

    shape: heads, length, width. platform: what the modules are for, one of `PLATFORMS`.
    """
    operand = jax.ShapeDtypeStruct(shape, dtype)
    size = "x".join(map(str, shape))
    functions = {
        f"attention_{size}_forward": jax.jit(attention),
        f"attention_{size}_gradient": jax.jit(jax.grad(loss, argnums=(0, 1, 2))),
    }
    paths = []
    for name, function in functions.items():
        paths.append(directory / f"{name}.mlir")
        lowered = function.trace(operand, operand, operand).lower(lowering_platforms=(platform,))
        paths[-1].write_text(lowered.as_text())
    return paths


if __name__ == "__main__":
    main()
