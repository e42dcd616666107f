"""The temporary memory of jax.random's samplers, read by one sum each, exported for a CPU and a GPU, before and after.

    python -m benchmarks.draws [--rows=N] [--columns=N] [--generators GENERATOR ...] [SAMPLER ...]

Each program is `sum(sin(draw(key)))`: no draw has to be kept. Both exports are compiled for this machine's CPU, before
and after exla-opt with a size threshold and slices of a sixteenth of the draw. Prints a Markdown table of megabytes; a
row whose exports are more than a quarter apart after exla-opt, or keep more than half of a draw, is marked.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import exla_opt  # noqa: E402
from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.diagnostics import InputError  # noqa: E402
from exla_opt.ir.read import parse_module  # noqa: E402
from exla_opt.memory.machine import CPU, GPU, Machine  # noqa: E402
from exla_opt.memory.peak import predict  # noqa: E402
from exla_opt.options import Options  # noqa: E402
from exla_opt.passes import normalise  # noqa: E402
from exla_opt.runtime.memory import measure_memory  # noqa: E402

Key = Any
Shape = tuple[int, int]
GENERATORS = ("threefry", "old threefry", "rbg", "unsafe_rbg")
# Slices are so many times smaller than the draw.
_PARTS = 16


def _bits(dtype: Any) -> Callable[[Key, Shape], jax.Array]:
    return lambda key, shape: jax.random.bits(key, shape, dtype).astype(jnp.float32)


def _dropout(key: Key, shape: Shape) -> jax.Array:
    kept = jax.random.bernoulli(key, 0.9, shape)
    return jnp.where(kept, jnp.cos(jnp.arange(float(shape[1]))) / 0.9, 0)


def _vectors(shape: Shape) -> tuple[int, int]:
    """Rows of 8 numbers, as many as fill the shape."""
    return shape[0] * shape[1] // 8, 8


def _orthogonal(key: Key, shape: Shape) -> jax.Array:
    return jax.random.orthogonal(key, round(sqrt(shape[0] * shape[1] / 64)), (64,))


SAMPLERS: dict[str, Callable[[Key, Shape], jax.Array]] = {
    "uniform": jax.random.uniform,
    "normal": jax.random.normal,
    "bernoulli": lambda key, shape: jax.random.bernoulli(key, 0.3, shape).astype(jnp.float32),
    "gumbel": jax.random.gumbel,
    "categorical": lambda key, shape: jax.random.categorical(
        key, jnp.cos(jnp.arange(float(shape[1]))), shape=shape[:1]
    ),
    "exponential": jax.random.exponential,
    "laplace": jax.random.laplace,
    "truncated_normal": lambda key, shape: jax.random.truncated_normal(key, -2.0, 2.0, shape),
    "cauchy": jax.random.cauchy,
    "rademacher": lambda key, shape: jax.random.rademacher(key, shape, jnp.float32),
    "randint": lambda key, shape: jax.random.randint(key, shape, 0, 1000),
    "bits 8": _bits(jnp.uint8),
    "bits 16": _bits(jnp.uint16),
    "bits 32": _bits(jnp.uint32),
    "bits 64": _bits(jnp.uint64),
    "dropout": _dropout,
    "multivariate_normal": lambda key, shape: jax.random.multivariate_normal(
        key, jnp.zeros(8), jnp.eye(8), _vectors(shape)[:1]
    ),
    "permutation": lambda key, shape: jax.random.permutation(key, shape[0] * shape[1]),
    "choice": lambda key, shape: jax.random.choice(key, 1000, shape),
    "choice, weighted": lambda key, shape: jax.random.choice(key, 1000, shape, p=jnp.full(1000, 1e-3)),
    "ball": lambda key, shape: jax.random.ball(key, 8, shape=_vectors(shape)[:1]),
    "orthogonal": _orthogonal,
    "gamma": lambda key, shape: jax.random.gamma(key, 2.5, shape),
    "beta": lambda key, shape: jax.random.beta(key, 2.0, 3.0, shape),
    "dirichlet": lambda key, shape: jax.random.dirichlet(key, jnp.ones(8), _vectors(shape)[:1]),
    "t": lambda key, shape: jax.random.t(key, 3.0, shape),
    "poisson": lambda key, shape: jax.random.poisson(key, 4.0, shape),
}


def main() -> None:
    """Print one row for each sampler and generator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2048, help="of numbers that are drawn [2048]")
    parser.add_argument("--columns", type=int, default=2048, help="of numbers in each row [2048]")
    parser.add_argument("--generators", nargs="*", choices=GENERATORS, default=GENERATORS)
    parser.add_argument("samplers", nargs="*", metavar="SAMPLER", help="those alone")
    options = parser.parse_args()
    shape = (options.rows, options.columns)
    print("| sampler | generator | for a CPU | after | for a GPU | after | |\n" + "| --- " * 7 + "|")
    for name in options.samplers or SAMPLERS:
        for generator in options.generators:
            jax.config.update("jax_enable_x64", name == "bits 64")
            print(f"| {name} | {generator} | {' | '.join(_row(SAMPLERS[name], generator, shape))} |", flush=True)


def _row(sample: Callable[[Key, Shape], jax.Array], generator: str, shape: Shape) -> Sequence[str]:
    cells, after = [], []
    size = 4 * shape[0] * shape[1]
    for platform in ("cpu", "cuda"):
        text = _export(sample, generator, shape, platform)
        machine, before = _temp(text)
        smaller = exla_opt.optimize(text, size_threshold=size // _PARTS, target=machine.kind).program
        _, left = _temp(smaller)
        cells += [f"{before / 1e6:.1f}", f"{left / 1e6:.1f}"]
        after.append(left)
    marks = ["apart"] * (max(after) > 1.25 * min(after) + 1e5) + ["large"] * (max(after) > size // 2)
    return [*cells, ", ".join(marks)]


def _temp(text: str) -> tuple[Machine, int]:
    """The machine that is planned for and the bytes of temporaries: a CPU's as the compiler plans them.

    A GPU's as predicted, where the program has calls that a CPU lacks; 4.2 MB are cuBLAS's own then.
    """
    try:
        return CPU, measure_memory(text).temp
    except InputError:
        with new_context() as context:
            module = parse_module("<program>", text.encode(), context).module
            normalise.run(module, Options())
            return GPU, predict(module, GPU).temp


def _export(sample: Callable[[Key, Shape], jax.Array], generator: str, shape: Shape, platform: str) -> str:
    jax.config.update("jax_threefry_partitionable", generator != "old threefry")
    kind = "threefry2x32" if "threefry" in generator else generator
    words = jax.random.key_data(jax.random.key(0, impl=kind))

    def total(words: jax.Array) -> jax.Array:
        return jnp.sin(sample(jax.random.wrap_key_data(words, impl=kind), shape).astype(jnp.float32)).sum()

    specs = jax.ShapeDtypeStruct(words.shape, words.dtype)
    return str(jax.export.export(jax.jit(total), platforms=[platform])(specs).mlir_module())


if __name__ == "__main__":
    main()
