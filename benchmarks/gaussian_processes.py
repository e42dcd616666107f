"""Likelihoods of exact Gaussian processes and their gradients: how many matrices of all points are in memory at once?

    python -m benchmarks.gaussian_processes
    python -m benchmarks.gaussian_processes --points=4000 --target=cuda:h200

The limit is 2.2 times the bytes of the matrix for a likelihood and 3.2 times for its value and gradient. `LAPACK` is
the program exported for a CPU (with --target for a GPU: cuSOLVER), `stablehlo` the one with `stablehlo.cholesky`.
Compiled, never run; prints a Markdown table with peaks as multiples of the matrix's bytes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.scipy import linalg, stats  # noqa: E402

from exla_opt.runtime.target import compiled_memory, parse_target  # noqa: E402

from .wild.entry import Array, f32  # noqa: E402

LIMITS = {"value": 2.2, "gradient": 3.2}


def kernel(scales: Array, x: Array) -> Array:
    """The covariances of all points, x: [n, d], with noise. scales: [d]."""
    z = x / scales
    squares = (z * z).sum(-1)
    return jnp.exp(-0.5 * (squares[:, None] + squares - 2 * z @ z.T)) + 0.1 * jnp.eye(x.shape[0])


def by_triangle(scales: Array, x: Array, y: Array) -> Array:
    """As in GPflow: one triangular solve."""
    factor = jnp.linalg.cholesky(kernel(scales, x))
    white = linalg.solve_triangular(factor, y, lower=True)
    return -0.5 * white @ white - jnp.log(jnp.diagonal(factor)).sum()


def by_both_triangles(scales: Array, x: Array, y: Array) -> Array:
    """As in scikit-learn: `cho_solve`."""
    factor = linalg.cho_factor(kernel(scales, x), lower=True)
    return -0.5 * y @ linalg.cho_solve(factor, y) - jnp.log(jnp.diagonal(factor[0])).sum()


def by_upper_factor(scales: Array, x: Array, y: Array) -> Array:
    """scipy's default: the upper factor."""
    factor = linalg.cho_factor(kernel(scales, x))
    return -0.5 * y @ linalg.cho_solve(factor, y) - jnp.log(jnp.diagonal(factor[0])).sum()


def by_density(scales: Array, x: Array, y: Array) -> Array:
    """jax's own multivariate normal density."""
    return stats.multivariate_normal.logpdf(y, jnp.zeros(y.shape), kernel(scales, x))


def main() -> None:
    """Print one row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=12_000)
    parser.add_argument("--target", default="cpu", help="as for exla-opt [cpu]")
    arguments = parser.parse_args()
    library = "cpu" if arguments.target == "cpu" else "cuda"
    print("| likelihood | | by | before | limit | after |\n" + "| --- " * 6 + "|")
    for function in (by_triangle, by_both_triangles, by_upper_factor, by_density):
        for what, limit in LIMITS.items():
            # Exports for a TPU keep stablehlo.cholesky, as those of TensorFlow do.
            for by, platform in (("LAPACK" if library == "cpu" else "cuSOLVER", library), ("stablehlo", "tpu")):
                text = export(function, what, arguments.points, platform)
                before, after = measured(text, limit, arguments.points, arguments.target)
                name = function.__name__
                print(f"| {name} | {what} | {by} | {before:.2f} | {limit} | {after:.2f} |", flush=True)


def export(function: Callable[..., Array], what: str, points: int, platform: str) -> str:
    """The function, or its value and gradient by the scales, as text."""
    program = jax.jit(function if what == "value" else jax.value_and_grad(function))
    sizes = (f32(4), f32(points, 4), f32(points))
    return str(jax.export.export(program, platforms=[platform])(*sizes).mlir_module())


def measured(text: str, limit: float, points: int, target: str) -> tuple[float, float]:
    """The peaks before and after, in matrices. Raises CalledProcessError when exla-opt fails."""
    matrix = 4 * points**2
    tool = Path(sys.executable).with_name("exla-opt")
    with tempfile.TemporaryDirectory() as directory:
        given, written = Path(directory) / "given.mlir", Path(directory) / "written.mlir"
        given.write_text(text)
        size = f"--memory-limit={int(limit * matrix)}"
        subprocess.run([tool, given, size, f"--target={target}", "--quiet", "-o", written], check=True)
        texts = (text, written.read_text())
    before, after = (compiled_memory(one, parse_target(target)).memory.peak / matrix for one in texts)
    return before, after


if __name__ == "__main__":
    main()
