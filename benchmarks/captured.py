"""Loops that read a large matrix in every step, recomputed in slices: peaks, and times as measured or estimated.

    python benchmarks/captured.py --points 4000 --features 4 32
    python benchmarks/captured.py --points 16000 --features 4 --target=cuda:h200

The limit is arguments, results and an eighth of the matrix. On a CPU both modules run by turns; for a target they are
compiled, and the times are exla-opt's estimates.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import exla_opt  # noqa: E402
from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import parse_module  # noqa: E402
from exla_opt.runtime.compile import compile_program, run_program, time_programs  # noqa: E402
from exla_opt.runtime.draws import choose_inputs  # noqa: E402
from exla_opt.runtime.target import compiled_memory, parse_target  # noqa: E402
from exla_opt.sizes import format_size  # noqa: E402

Array = Any
STEPS = 20


def gaussian(x: Array, y: Array) -> Array:
    """The Gaussian kernel matrix of two sets of points."""
    return jnp.exp(-((x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T) / 2)


def power_iteration(x: Array) -> Array:
    """The first eigenvector of the kernel."""
    k = gaussian(x, x)

    def step(v: Array, _: None) -> tuple[Array, None]:
        w = k @ v
        return w / jnp.linalg.norm(w), None

    return lax.scan(step, x[:, 0], None, length=STEPS)[0]


def conjugate_gradient(x: Array) -> Array:
    """The kernel's solve for one right-hand side."""
    k = gaussian(x, x) + 0.1 * jnp.eye(len(x))
    b = jnp.sin(x[:, 0])

    def step(carry: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        z, r, p, rr = carry
        kp = k @ p
        a = rr / (p @ kp)
        r = r - a * kp
        new = r @ r
        return (z + a * p, r, r + new / rr * p, new), None

    return lax.scan(step, (jnp.zeros_like(b), b, b, b @ b), None, length=STEPS)[0][0]


def scaling(x: Array) -> Array:
    """Sinkhorn's iteration on the kernel itself."""
    k, ones = gaussian(x, x[::-1]), jnp.ones(len(x))

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        u = 1 / (k @ carry[1])
        return (u, 1 / (k.T @ u)), None

    return lax.scan(step, (ones, ones), None, length=STEPS)[0]


def main() -> None:
    """Print one row a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=4000)
    parser.add_argument("--features", type=int, nargs="+", default=[4])
    parser.add_argument(
        "--target",
        choices=("cuda:h100", "cuda:h200"),
        help="whose times are estimated; without it the programs run on this machine's CPU",
    )
    given = parser.parse_args()
    print(f"| {given.points:,} points | peak before | after | | time |\n| --- | --- | --- | --- | --- |")
    for features in given.features:
        for function in (power_iteration, conjugate_gradient, scaling):
            print(_row(function, given.points, features, given.target), flush=True)


def _row(function: Callable[[Array], Any], points: int, features: int, target: str | None) -> str:
    spec = jax.ShapeDtypeStruct((points, features), jnp.float32)
    before = jax.export.export(jax.jit(function), platforms=_platforms(target))(spec).mlir_module_serialized
    machine = parse_target(target or "cpu")
    found = [compiled_memory(before, machine)]
    memory = found[0].memory
    limit = memory.peak - memory.temp + points * points * 4 // 8
    after = exla_opt.optimize(before, memory_limit=limit, target=target).program
    found.append(compiled_memory(after, machine))
    peaks = [each.memory.peak for each in found]
    times = [each.time.seconds if each.time else 0.0 for each in found] if target else _run(before, after)
    name = f"{function.__name__.replace('_', ' ')}, {features} features"
    return (
        f"| {name} | {format_size(peaks[0])} | {format_size(peaks[1])} | ÷ {peaks[0] / peaks[1]:.1f} "
        f"| {times[1] / times[0]:.2f} × |"
    )


def _platforms(target: str | None) -> list[str]:
    return ["cpu" if target is None else target.partition(":")[0]]


def _run(before: bytes, after: bytes) -> list[float]:
    module = parse_module("before", before, new_context()).module
    programs = [compile_program(each) for each in (before, after)]
    arrays, _ = choose_inputs(module, 0, lambda arrays: run_program(programs[0], arrays))
    return list(time_programs(programs, arrays, 7))


if __name__ == "__main__":
    main()
