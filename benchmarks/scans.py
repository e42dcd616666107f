"""Gradients of large scans: temporary memory before and after, without the pass loop-residuals and with it.

Only compiles, so the programs may be far larger than the machine. --times runs smaller ones too, by turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import Program, compile_program, run_program
from exla_opt.sizes import format_size, parse_size

Array = Any


@dataclass(frozen=True, slots=True)
class Scan:
    """A loss. shapes: of its arguments, large ones and ones to be run. threshold: of the large ones, as text."""

    name: str
    loss: Callable[..., Array]
    large: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    threshold: str
    small_threshold: str


def lstm(w: Array, u: Array, inputs: Array) -> Array:
    def step(state: Any, x: Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(h @ w + x @ u, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros((inputs.shape[1], w.shape[0]))
    return (lax.scan(step, (start, start), inputs)[0][0] ** 2).sum()


def gru(w: Array, u: Array, inputs: Array) -> Array:
    def step(h: Array, x: Array) -> Any:
        wz, wr, wn = jnp.split(w, 3, axis=1)
        xz, xr, xn = jnp.split(x @ u, 3, axis=1)
        z, r = jax.nn.sigmoid(h @ wz + xz), jax.nn.sigmoid(h @ wr + xr)
        return (1 - z) * jnp.tanh((r * h) @ wn + xn) + z * h, None

    return (lax.scan(step, jnp.zeros((inputs.shape[1], w.shape[0])), inputs)[0] ** 2).sum()


def total(y: Array, zs: Array) -> Array:
    return lax.scan(lambda c, z: (c + jnp.sin(y + z).sum(), None), 0.0, zs)[0]


def sinkhorn(x: Array, y: Array) -> Array:
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)

    def step(potentials: Any, _: Any) -> Any:
        f, g = potentials
        f = -jax.nn.logsumexp(g[None] - cost, axis=1)
        return (f, -jax.nn.logsumexp(f[:, None] - cost, axis=0)), None

    f, g = lax.scan(step, (jnp.zeros(len(x)), jnp.zeros(len(y))), None, length=10)[0]
    return f.mean() + g.mean()


def runge_kutta(w: Array, v: Array, start: Array) -> Array:
    def flow(x: Array) -> Array:
        return jnp.tanh(x @ w) @ v

    def step(x: Array, _: Any) -> Any:
        a = flow(x)
        b = flow(x + 0.001 * a)
        c = flow(x + 0.001 * b)
        return x + 0.001 / 3 * (a + 2 * b + 2 * c + flow(x + 0.002 * c)), None

    return (lax.scan(step, start, None, length=500)[0] ** 2).sum()


def alignment(scores: Array) -> Array:
    def step(alpha: Array, x: Array) -> Any:
        before = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=-1e5)[:, :-1]
        twice = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=-1e5)[:, :-2]
        return jnp.logaddexp(jnp.logaddexp(alpha, before), twice) + x, None

    return lax.scan(step, jnp.zeros(scores.shape[1:]), jax.nn.log_softmax(scores))[0].sum()


SCANS = (
    Scan(
        "LSTM, 4,096 steps, batch 256, width 1,024",
        lstm,
        ((1024, 4096), (64, 4096), (4096, 256, 64)),
        ((256, 1024), (16, 1024), (256, 64, 16)),
        "300MB",
        "2MB",
    ),
    Scan(
        "GRU, 4,096 steps, batch 256, width 1,024",
        gru,
        ((1024, 3072), (64, 3072), (4096, 256, 64)),
        ((256, 768), (16, 768), (256, 64, 16)),
        "150MB",
        "2MB",
    ),
    Scan(
        "sum of sin(y + z), 40 steps of 3,000 x 4,000",
        total,
        ((3000, 4000), (40, 3000, 4000)),
        ((500, 1000), (40, 500, 1000)),
        "50MB",
        "2MB",
    ),
    Scan(
        "Sinkhorn, 10 steps of 9,000 x 9,000", sinkhorn, ((9000, 3), (9000, 3)), ((1500, 3), (1500, 3)), "20MB", "1MB"
    ),
    Scan(
        "Runge-Kutta, 500 steps, batch 4,096, width 512",
        runge_kutta,
        ((512, 1024), (1024, 512), (4096, 512)),
        ((64, 128), (128, 64), (256, 64)),
        "200MB",
        "2MB",
    ),
    Scan("alignment (CTC), 1,500 steps, 64 x 1,000", alignment, ((1500, 64, 1000),), ((300, 16, 200),), "20MB", "1MB"),
)


def rewrite(text: str, threshold: int, without: str = "") -> str:
    """The program after the default passes but one."""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        options = Options(size_threshold=threshold, split_size=min(threshold, 8_000_000))
        run_pipeline(module, [name for name in DEFAULT_PASSES if name != without], options)
        return serialise(module, "text").decode()


def export(scan: Scan, shapes: tuple[tuple[int, ...], ...]) -> str:
    """The value and the gradient by all arguments, as StableHLO text."""
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return str(jax.jit(jax.grad(scan.loss, tuple(range(len(given))))).lower(*given).as_text())


def temp(text: str) -> int:
    """The bytes of temporary memory that XLA:CPU plans."""
    program = compile_program(text, count_all_memory=True)
    return int(program.executable.get_compiled_memory_stats().temp_size_in_bytes)


def ratio(scan: Scan, runs: int) -> float:
    """How many times as long the small one takes after the passes: medians of runs by turns."""
    text = export(scan, scan.small)
    rng = np.random.default_rng(0)
    arrays = [(0.1 * rng.standard_normal(shape)).astype(np.float32) for shape in scan.small]
    programs = [compile_program(each) for each in (text, rewrite(text, parse_size(scan.small_threshold)))]
    seconds: list[list[float]] = [[], []]
    for _ in range(runs + 1):
        for program, found in zip(programs, seconds, strict=True):
            found.append(_seconds(program, arrays))
    before, after = (float(np.median(found[1:])) for found in seconds)
    return after / before


def _seconds(program: Program, arrays: list[Any]) -> float:
    start = time.perf_counter()
    run_program(program, arrays)
    return time.perf_counter() - start


@click.command()
@click.option("--only", default="", help="Programs whose name has this in it.")
@click.option("--times", default=0, help="How often each of the smaller programs is run; 0: not at all.")
def main(only: str, times: int) -> None:
    """Print a table of the gradients of large scans."""
    print("| gradient of | threshold | temp before | without loop-residuals | with it | time |")
    print("| --- | --- | --- | --- | --- | --- |")
    for scan in SCANS:
        if only not in scan.name:
            continue
        text, threshold = export(scan, scan.large), parse_size(scan.threshold)
        texts = (text, rewrite(text, threshold, "loop-residuals"), rewrite(text, threshold))
        sizes = [format_size(temp(each)) for each in texts]
        taken = f"{ratio(scan, times):.2f} ×" if times else ""
        print(f"| {scan.name} | {scan.threshold} | {' | '.join(sizes)} | {taken} |", flush=True)


if __name__ == "__main__":
    main()
