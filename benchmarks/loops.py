"""Run time of split programs against the same programs without XLA:CPU's pass that makes a loop one kernel.

    python benchmarks/loops.py --tiles 1MB 4MB 16MB --repeat 15

Writes the programs itself with JAX. Each runs by turns in this process: as it is split, and split but for the sort that
keeps a loop's kernels apart (see exla_opt/memory/loop_kernels.py), with XLA's pass off and on. Prints a Markdown
table: the least milliseconds with the pass off, the others as ratios to it, how many loops are one kernel, and whether
the results have the bits of the first.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import exla_opt  # noqa: E402
from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import parse_module  # noqa: E402
from exla_opt.passes.tensor_splitter import driver  # noqa: E402
from exla_opt.runtime import pjrt  # noqa: E402
from exla_opt.runtime.inputs import random_inputs, read_signature  # noqa: E402

PASS = "small-while-loop-hoisting"
ONE_KERNEL = 'xla_cpu_small_call="true"'


def main() -> None:
    """Print one row a program and size of tiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", nargs="+", default=["1MB", "4MB", "16MB"])
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=15, help="timed runs of each [15]")
    arguments = parser.parse_args()
    print(f"jaxlib {jax.__version__}, {os.cpu_count()} cores\n")
    print("| program | tiles | pass off, ms | as split | one kernel | bits | without the sort | one kernel | bits |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.only:
        for tile in arguments.tiles:
            print(row(name, tile, arguments.repeat), flush=True)


def row(name: str, tile: str, repeats: int) -> str:
    """Split, compile thrice, run by turns."""
    function, shapes = PROGRAMS[name]
    text = jax.jit(function).lower(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)).as_text()
    split = exla_opt.optimize(text, size_threshold=tile).program
    with mock.patch.object(driver, "needs_separate_kernels", lambda loop, types: False):
        plain = exla_opt.optimize(text, size_threshold=tile).program
    with new_context() as context:
        signature = read_signature(parse_module("<program>", text.encode(), context).module)
    inputs = [jax.device_put(array) for array in random_inputs(signature, seed=0)]
    programs = [compile_module(plain, [PASS]), compile_module(split, []), compile_module(plain, [])]
    results = [run(program, inputs)[0] for program in programs]
    least = [float("inf")] * len(programs)
    for _ in range(repeats):
        for place, program in enumerate(programs):
            least[place] = min(least[place], run(program, inputs)[1])
    off, *others = least
    cells = [name, tile, f"{off * 1e3:.1f}"]
    for program, result, seconds in zip(programs[1:], results[1:], others, strict=True):
        same = all(np.array_equal(*pair, equal_nan=True) for pair in zip(results[0], result, strict=True))
        one_kernel = program.hlo_modules()[0].to_string().count(ONE_KERNEL)
        cells += [f"{seconds / off:.2f}", str(one_kernel), "equal" if same else "other"]
    return f"| {' | '.join(cells)} |"


def compile_module(module: str | bytes, disabled: list[str]) -> Any:
    """PJRT's executable of a module, without the passes named."""
    return pjrt.compile_here("cpu", module, [("xla_disable_hlo_passes", name) for name in disabled])[0]


def run(program: Any, inputs: list[jax.Array]) -> tuple[list[Any], float]:
    """The results, and the seconds."""
    start = time.perf_counter()
    results = jax.block_until_ready(pjrt.execute(program, inputs))
    seconds = time.perf_counter() - start
    return [np.asarray(result) for result in results], seconds


def gaussian_times_vector(x: jax.Array, y: jax.Array, vector: jax.Array) -> jax.Array:
    """exp(-|x_i - y_j|^2) v, from the coordinates."""
    return jnp.exp(-((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)) @ vector


def log_sum_exp(x: jax.Array, y: jax.Array) -> jax.Array:
    """log sum_j exp(x_i . y_j)"""
    return jax.scipy.special.logsumexp(x @ y.T, axis=1)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """softmax(q k^T) v of several heads."""
    weights = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 8, axis=-1)
    return jnp.einsum("hqk,hkd->hqd", weights, v)


def nearest(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The ten nearest of y to each x."""
    distances = (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T
    values, places = jax.lax.top_k(-distances, 10)
    return values, places


def nearest_one(x: jax.Array, y: jax.Array) -> jax.Array:
    """The place of the nearest of y to each x."""
    return jnp.argmin(((x[:, None, :] - y[None, :, :]) ** 2).sum(-1), axis=1)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "gaussian_times_vector": (gaussian_times_vector, [(20_000, 3), (20_000, 3), (20_000,)]),
    "log_sum_exp": (log_sum_exp, [(8192, 64), (8192, 64)]),
    "attention": (attention, [(4, 2048, 64)] * 3),
    "nearest": (nearest, [(1000, 10), (50_000, 10)]),
    "nearest_one": (nearest_one, [(5000, 3), (20_000, 3)]),
}

if __name__ == "__main__":
    main()
