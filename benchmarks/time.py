"""Run time of modules before and after exla-opt; prints a Markdown table and the geometric mean of the ratios.

    python benchmarks/time.py --modules DIRECTORY --size-threshold=10MB --split-size=8MB

Takes the modules of middle size in DIRECTORY, on the inputs in the .npz file next to each, and an attention forward
and gradient exported here. Both programs run in this process, compiled with XLA's default flags, by turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Before jax and jaxlib load: a benchmark's output should be its table.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from attention import export_attention  # noqa: E402

from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import read_module  # noqa: E402
from exla_opt.ir.write import serialise  # noqa: E402
from exla_opt.runtime.compare import compare  # noqa: E402
from exla_opt.runtime.compile import compile_program, run_program, time_programs  # noqa: E402
from exla_opt.runtime.inputs import load_inputs, random_inputs, read_signature  # noqa: E402
from exla_opt.runtime.memory import measure_memory  # noqa: E402


def main() -> None:
    """Print one row a module, then the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of .mlir and .mlir.gz files with .npz")
    parser.add_argument("--pattern", default="*_mid_*", help="glob of names [*_mid_*]")
    parser.add_argument("--size-threshold", default="10MB")
    parser.add_argument("--split-size", default="8MB")
    parser.add_argument("--repeat", type=int, default=7, help="timed runs of each [7]")
    arguments = parser.parse_args()
    sizes = [f"--size-threshold={arguments.size_threshold}", f"--split-size={arguments.split_size}"]
    print("| module | before, ms | after, ms | ratio | temp before, MB | after, MB | results |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        paths = [path for path in arguments.modules.glob(arguments.pattern) if ".mlir" in path.suffixes]
        for path in sorted(paths) + export_attention(Path(directory)):
            ratios.append(print_row(path, Path(directory) / "smaller.mlir", sizes, arguments.repeat))
    print(f"| geometric mean | | | {statistics.geometric_mean(ratios):.3f} | | | |")


def print_row(path: Path, smaller: Path, sizes: Sequence[str], repeats: int) -> float:
    """Rewrite, run and compare one module, print its row, and return the ratio of the times."""
    tool = Path(sys.executable).with_name("exla-opt")
    subprocess.run([tool, path, *sizes, "--quiet", "-o", smaller], check=True)
    modules = [read_module(str(file), new_context()).module for file in (path, smaller)]
    signature = read_signature(modules[0])
    inputs = path.with_name(path.name.partition(".mlir")[0] + ".npz")
    arrays = load_inputs(str(inputs), signature) if inputs.exists() else random_inputs(signature, seed=0)
    data = [serialise(module, "bytecode") for module in modules]
    programs = [compile_program(one) for one in data]
    expected, actual = (run_program(program, arrays) for program in programs)
    equal = all(compare(one, other).passed for one, other in zip(expected, actual, strict=True))
    before, after = time_programs(programs, arrays, repeats)
    temps = [measure_memory(one).temp / 1e6 for one in data]
    cells = [path.name, f"{before * 1e3:.1f}", f"{after * 1e3:.1f}", f"{after / before:.2f}"]
    cells += [*(f"{temp:.1f}" for temp in temps), "equal" if equal else "DIFFERENT"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return after / before


if __name__ == "__main__":
    main()
