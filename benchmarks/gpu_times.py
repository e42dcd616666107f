"""The estimated time of attention on an H100 against published measurements, for which no GPU is needed.

    JAX_PLATFORMS=cpu python benchmarks/gpu_times.py

Published: "standard attention", the forward pass without a mask, of Shah and others, FlashAttention-3 (arXiv
2407.08608), figure 5, on an H100 SXM5: float16, 16,384 tokens in all, a hidden dimension of 2,048. PyTorch runs the
three kernels there that XLA makes: two products of matrices and a softmax.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from exla_opt.runtime.target import compiled_memory, parse_target  # noqa: E402

TOKENS, HIDDEN = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192)
# By the width of a head, 10^12 operations a second for each length.
PUBLISHED = {64: (52, 63, 67, 72, 73), 128: (74, 100, 119, 133, 139)}


def main() -> None:
    """Print a table."""
    target = parse_target("cuda:h100")
    print("| width | length | measured, ms | estimated, ms | estimated / measured |")
    print("| --- | --- | --- | --- | --- |")
    for width, speeds in PUBLISHED.items():
        for length, speed in zip(LENGTHS, speeds, strict=True):
            batch, heads = TOKENS // length, HIDDEN // width
            time = compiled_memory(export(batch, heads, length, width), target).time
            assert time is not None
            measured = 4 * batch * heads * length**2 * width / (speed * 1e12)
            ratio = time.seconds / measured
            print(f"| {width} | {length} | {measured * 1e3:.2f} | {time.seconds * 1e3:.2f} | {ratio:.2f} |")


def attention(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Softmax attention: three arrays of (batch, heads, length, width) to one of the same shape."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", queries, keys) * queries.shape[-1] ** -0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), values)


def export(batch: int, heads: int, length: int, width: int) -> str:
    """Attention in float16 as StableHLO text for a GPU."""
    operand = jax.ShapeDtypeStruct((batch, heads, length, width), jnp.float16)
    exported = jax.export.export(jax.jit(attention), platforms=["cuda"])(operand, operand, operand)
    return str(exported.mlir_module())


if __name__ == "__main__":
    main()
