"""Two programs that are far too large for one GPU, exported for it as StableHLO; nothing is run.

python examples/large.py DIRECTORY
exla-opt DIRECTORY/sgpr_3droad.mlir --target=cuda:h200 --memory-limit=12GB -o smaller.mlir

sgpr_3droad: the gradient of a sparse Gaussian process' bound, on data of the size of the 3droad set.
encoder_131072: the gradient of a transformer's encoder layer over a sequence of 131,072.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax.scipy.linalg import solve_triangular

POINTS, INDUCING, FEATURES = 434_874, 10_000, 3
SEQUENCE, HEADS, WIDTH = 131_072, 8, 64


def kernel(a: jax.Array, b: jax.Array, scales: jax.Array) -> jax.Array:
    """Squared exponential, with a scale for every feature: (n, d), (m, d) and (d,) to (n, m)."""
    apart = (a[:, None, :] - b[None, :, :]) / scales
    return jnp.exp(-0.5 * jnp.sum(apart**2, axis=-1))


def bound(inducing: jax.Array, scales: jax.Array, noise: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Titsias' bound of the marginal likelihood of a sparse Gaussian process (AISTATS 2009)."""
    count, size = x.shape[0], inducing.shape[0]
    factor = jnp.linalg.cholesky(kernel(inducing, inducing, scales) + 1e-6 * jnp.eye(size))
    half = solve_triangular(factor, kernel(inducing, x, scales), lower=True) / jnp.sqrt(noise)
    inner = jnp.linalg.cholesky(half @ half.T + jnp.eye(size))
    weights = solve_triangular(inner, half @ y, lower=True) / jnp.sqrt(noise)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(inner))) + count * jnp.log(noise)
    misfit = y @ y / noise - weights @ weights
    slack = count / noise - jnp.sum(half**2)
    return -0.5 * (log_determinant + misfit + slack + count * math.log(2 * math.pi))


def encoder(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """The sum of one encoder layer's outputs: attention of 8 heads and two dense layers, with residuals."""
    queries, keys, values = jnp.einsum("sd,tdhk->thsk", x, weights["projections"])
    scores = jax.nn.softmax(jnp.einsum("hsk,htk->hst", queries, keys) / math.sqrt(WIDTH), axis=-1)
    x = x + jnp.einsum("hst,htk,hkd->sd", scores, values, weights["output"])
    return jnp.sum(jnp.tanh(x + jax.nn.relu(x @ weights["up"]) @ weights["down"]))


def write(path: Path, function: Callable[..., Any], *arguments: Any) -> None:
    """Export a function for a GPU and write it as text."""
    path.write_text(str(export.export(jax.jit(function), platforms=["cuda"])(*arguments).mlir_module()))
    print(path)


def main() -> None:
    """Write both."""
    directory = Path(sys.argv[1])
    model = HEADS * WIDTH
    with jax.enable_x64(True):
        shapes = ((INDUCING, FEATURES), (FEATURES,), (), (POINTS, FEATURES), (POINTS,))
        arguments = [jax.ShapeDtypeStruct(shape, "float64") for shape in shapes]
        write(directory / "sgpr_3droad.mlir", jax.grad(bound, (0, 1, 2)), *arguments)
    weights = {
        "projections": (3, model, HEADS, WIDTH),
        "output": (HEADS, WIDTH, model),
        "up": (model, 4 * model),
        "down": (4 * model, model),
    }
    kinds = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in weights.items()}
    write(
        directory / "encoder_131072.mlir", jax.grad(encoder), kinds, jax.ShapeDtypeStruct((SEQUENCE, model), "float32")
    )


if __name__ == "__main__":
    main()
