"""Naive JAX code through exla-opt against its peers: seconds of a run, in one Markdown table.

    python -m benchmarks.peers
    python -m benchmarks.peers --only gaussian attention --rounds=5 --memory-limit=64MB

Each task is a naive JAX function, run as plain XLA compiles it; with jax.lax.map(batch_size=...); in a loop over blocks
of rows under jax.checkpoint, as people write it by hand; as jax's own function, where there is one; in KeOps, where it
is installed; and naive through exla-opt --memory-limit. Results are compared with those of the first that runs, by the
rule of exla_opt.runtime.compare, before anything is timed. Then all take turns, every second round in the other order,
and the median counts. Everything is compiled before, and arrays are where they are needed. lax.map and the blocks by
hand get the faster of two batches. Each uses all cores that the process may use (taskset). The last ratio is that of
the processor's seconds, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# Before jax loads: a benchmark's output should be its table.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.wild.measure import geometric_mean, rewrite  # noqa: E402
from exla_opt.runtime import pjrt  # noqa: E402
from exla_opt.runtime.compare import compare  # noqa: E402
from exla_opt.runtime.compile import compile_program  # noqa: E402
from exla_opt.runtime.memory import measure_memory  # noqa: E402
from exla_opt.sizes import format_size, parse_size  # noqa: E402

from . import keops  # noqa: E402
from .tasks import Task, tasks  # noqa: E402

Array = Any
Run = Callable[[], list[Array]]
BATCHES = (32, 256)
_PATIENCE = 600.0
_OURS, _PLAIN = "exla-opt", "plain XLA"
_OTHERS = (_PLAIN, "lax.map", "by hand", "jax.nn", "KeOps")


@dataclass(frozen=True, slots=True)
class Limits:
    """limit: bytes for what exla-opt writes. memory: of the largest program that is run. rounds: timed runs of each."""

    limit: int
    memory: int
    rounds: int


def main() -> None:
    """Print one row a task, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="tasks whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each [5]")
    parser.add_argument("--memory-limit", default="64MB", help="of exla-opt's programs [64MB]")
    parser.add_argument("--memory", default="5GB", help="programs that need more are not run [5GB]")
    parser.add_argument("--part", type=int, default=1, help="divide all sizes by this [1]")
    arguments = parser.parse_args()
    limits = Limits(parse_size(arguments.memory_limit), parse_size(arguments.memory), arguments.rounds)
    formulas = keops.programs()
    if not formulas:
        print(keops.MISSING, file=sys.stderr)
    print(f"jaxlib {jax.__version__}, {len(os.sched_getaffinity(0))} cores\n")
    figures = ("best of the others / ours", "of the processor", "memory, plain", _OURS)
    print(f"| {' | '.join(('task', *_OTHERS, _OURS, *figures))} |")
    print("|" + " --- |" * (len(_OTHERS) + 6))
    ratios = []
    for task in tasks(arguments.part):
        if not arguments.only or any(part in task.name for part in arguments.only):
            line, ratio = row(task, formulas.get(task.keops), limits)
            print(line, flush=True)
            ratios.append(ratio)
    print(f"\nGeometric mean of {len(ratios)}: {geometric_mean(ratios):.2f}.")


def row(task: Task, formula: Callable[..., Array] | None, limits: Limits) -> tuple[str, float]:
    """The line of one task, and the time of the fastest of the others over ours."""
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in task.shapes]
    cells, runs = {}, {}
    plain = export(task.naive, arrays)
    smaller = rewrite(plain, limits.limit, _PATIENCE)[0]
    needed = measure_memory(plain).peak
    if needed > limits.memory:
        cells[_PLAIN] = f"needs {format_size(needed)}"
    else:
        runs[_PLAIN] = program(plain, arrays)
    for name, version in (("lax.map", task.by_map), ("by hand", task.by_hand)):
        runs[name] = fastest([program(export(version(batch), arrays), arrays) for batch in BATCHES])
    if task.library:
        runs["jax.nn"] = program(export(task.library, arrays), arrays)
    if formula:
        runs["KeOps"] = lambda: [formula(*arrays)]
    runs[_OURS] = program(smaller, arrays)
    wrong = differing(runs)
    times = time_by_turns([run for name, run in runs.items() if name not in wrong], limits.rounds)
    found = dict(zip([name for name in runs if name not in wrong], times, strict=True))
    cells |= {name: f"{seconds:.3g}" for name, (seconds, _) in found.items()} | dict.fromkeys(wrong, "DIFFERENT")
    ours = found.pop(_OURS, (float("nan"), float("nan")))
    ratio, processor = (min(each[which] for each in found.values()) / ours[which] for which in (0, 1))
    figures = [f"{ratio:.1f}", f"{processor:.1f}", format_size(needed), format_size(measure_memory(smaller).peak)]
    return f"| {' | '.join([task.name, *(cells.get(name, '') for name in (*_OTHERS, _OURS)), *figures])} |", ratio


def export(function: Callable[..., Any], arrays: Sequence[Array]) -> str:
    """The function on arrays like these, as StableHLO text for a CPU."""
    return str(jax.export.export(jax.jit(function), platforms=["cpu"])(*arrays).mlir_module())


def program(text: str, arrays: Sequence[Array]) -> Run:
    """The module compiled, its arguments on the device: runs and waits."""
    compiled = compile_program(text)
    buffers = [jax.device_put(array, compiled.devices[0]) for array in arrays]

    def run() -> list[Array]:
        return list(jax.block_until_ready(pjrt.execute(compiled.executable, buffers)))

    return run


def fastest(runs: Sequence[Run]) -> Run:
    """The one that takes the shortest, each run twice."""
    for run in runs:
        run()
    return min(runs, key=lambda run: time_by_turns([run], 1)[0][0])


def differing(runs: dict[str, Run]) -> list[str]:
    """The names of those whose results are not equal to those of the first."""
    made = {name: [np.asarray(result) for result in run()] for name, run in runs.items()}
    expected = next(iter(made.values()))
    return [
        name
        for name, results in made.items()
        if not all(compare(*pair).passed for pair in zip(expected, results, strict=True))
    ]


def time_by_turns(runs: Sequence[Run], rounds: int) -> list[tuple[float, float]]:
    """The median seconds of each and of the processor, all run in each round, forwards and backwards in turn."""
    seconds: list[list[float]] = [[] for _ in runs]
    used: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        order = range(len(runs))
        for place in order if number % 2 == 0 else reversed(order):
            start, processor = time.perf_counter(), time.process_time()
            runs[place]()
            seconds[place].append(time.perf_counter() - start)
            used[place].append(time.process_time() - processor)
    return [(statistics.median(one), statistics.median(other)) for one, other in zip(seconds, used, strict=True)]


if __name__ == "__main__":
    main()
