"""Run time of modules within a part of their temporary memory; prints a Markdown table.

    python benchmarks/training_steps.py DIRECTORY
    python benchmarks/time_within.py --modules DIRECTORY --of-temp=0.1667,0.05

A limit is arguments and results and a part of the temporary memory that XLA:CPU plans for the program as it is.
exla-opt searches as on the command line. Both programs run in this process, compiled with XLA's default flags, by turns
and on the same inputs, chosen and compared as exla-run does. Memory is that of the larger of two compiles, as exla-run
prints it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

# Before jax and jaxlib load: a benchmark's output should be its table.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import read_module  # noqa: E402
from exla_opt.ir.write import serialise  # noqa: E402
from exla_opt.runtime.check import compare_results  # noqa: E402
from exla_opt.runtime.compare import Array  # noqa: E402
from exla_opt.runtime.compile import compile_program, run_program, time_programs  # noqa: E402
from exla_opt.runtime.draws import choose_inputs  # noqa: E402
from exla_opt.runtime.target import compiled_memory, parse_target  # noqa: E402
from exla_opt.sizes import format_size  # noqa: E402


def main() -> None:
    """Print one row a module and part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of modules, or one module")
    parser.add_argument("--pattern", default="*.mlir*", help="glob of names [*.mlir*]")
    parser.add_argument("--of-temp", default="0.1667,0.05", help="limits as parts of temp [0.1667,0.05]")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs of each [3]")
    parser.add_argument("--keep", type=Path, help="directory for what exla-opt writes")
    arguments = parser.parse_args()
    heads = ["module", "temp", "part", "limit", "temp after", "", "peak after", "", "time", "results", "exla-opt, s"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    paths = [arguments.modules] if arguments.modules.is_file() else sorted(arguments.modules.glob(arguments.pattern))
    with tempfile.TemporaryDirectory() as directory:
        for path in paths:
            for part in arguments.of_temp.split(","):
                name = f"{path.name.partition('.mlir')[0]}_{part}.mlir"
                print_row(path, (arguments.keep or Path(directory)) / name, float(part), arguments.repeat)


def print_row(path: Path, smaller: Path, part: float, repeats: int) -> None:
    """Search, run and compare one module under one limit, and print its row."""
    original = read_module(str(path), new_context()).module
    data = serialise(original, "bytecode")
    target = parse_target("cpu")
    before = compiled_memory(data, target).memory
    limit = before.peak - before.temp + int(part * before.temp)
    start = time.perf_counter()
    tool = Path(sys.executable).with_name("exla-opt")
    done = subprocess.run([tool, path, f"--memory-limit={limit}", "--quiet", "-o", smaller], check=False)
    seconds = time.perf_counter() - start
    if not smaller.exists():
        print(f"| {smaller.stem} | exit {done.returncode} after {seconds:.0f} s |", flush=True)
        return
    rewritten = serialise(read_module(str(smaller), new_context()).module, "bytecode")
    after = compiled_memory(rewritten, target).memory
    programs = [compile_program(one) for one in (data, rewritten)]

    def run_original(arrays: Sequence[Array]) -> list[Array]:
        return run_program(programs[0], arrays)

    arrays, expected = choose_inputs(original, 0, run_original)
    found = compare_results(expected, run_program(programs[1], arrays), run_original, arrays)
    different = sum(not one.passed for one in found)
    slow, fast = time_programs(programs, arrays, repeats)
    cells = [path.name.partition(".mlir")[0], format_size(before.temp), f"{part:g}", format_size(limit)]
    cells += [format_size(after.temp), f"÷ {before.temp / max(after.temp, 1):.1f}", format_size(after.peak)]
    cells += ["met" if after.peak <= limit else "**not met**", f"{fast / slow:.2f} x"]
    cells += [f"{different} of {len(expected)} differ" if different else "equal", f"{seconds:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
