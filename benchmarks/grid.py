"""The program that a memory limit chooses against those of split sizes chosen by hand; prints a Markdown table.

    python benchmarks/grid.py --modules DIRECTORY

For each module of middle size, and for attention exported here, the limits are its arguments and results and a part of
the temporary memory that it needs unsplit. All programs of a module run in this process, by turns; equal ones once.
A second table says how the predicted seconds order the programs of each module: Spearman's rank correlation with the
measured ones, 1 where the orders are the same, and how many times as slow as the fastest program the one is that is
predicted to be.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Before jax and jaxlib load: a benchmark's output should be its table.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from attention import export_attention  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402
from memory import BIN  # noqa: E402
from ranks import rank_correlation  # noqa: E402

from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import read_module  # noqa: E402
from exla_opt.ir.write import serialise  # noqa: E402
from exla_opt.memory.timeline import read_timeline  # noqa: E402
from exla_opt.options import Options  # noqa: E402
from exla_opt.pipeline import run_pipeline  # noqa: E402
from exla_opt.runtime.compile import compile_program, run_program, time_programs  # noqa: E402
from exla_opt.runtime.inputs import load_inputs, random_inputs, read_signature  # noqa: E402
from exla_opt.runtime.memory import measure_memory  # noqa: E402
from exla_opt.sizes import format_size  # noqa: E402

GRID = ("1MB", "2MB", "4MB", "8MB", "16MB", "32MB", "64MB")
PARTS = (2, 4, 8)


def main() -> None:
    """Print one row a module and limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of .mlir and .mlir.gz files with .npz")
    parser.add_argument("--pattern", default="*_mid_*", help="glob of names [*_mid_*]")
    parser.add_argument("--repeat", type=int, default=7, help="timed runs of each [7]")
    parser.add_argument("--target", default="cpu", help="as for exla-opt; empty for the prediction [cpu]")
    arguments = parser.parse_args()
    print("| module | limit | peak | slices | ms | best of the grid within it | ms | ratio | best of all, ms | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ranked: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        paths = [path for path in arguments.modules.glob(arguments.pattern) if ".mlir" in path.suffixes]
        for path in sorted(paths) + export_attention(Path(directory)):
            ranked[path.name.partition(".mlir")[0]] = print_rows(path, Path(directory), arguments)
    print("\n| module | programs | rank correlation | fastest by prediction, over the fastest |")
    print("| --- | --- | --- | --- |")
    for name, figures in ranked.items():
        if len(figures) > 2:
            print(f"| {name} | {len(figures)} | {rank_correlation(figures):.2f} | {regret(figures):.2f} |")


def regret(figures: Sequence[tuple[float, float]]) -> float:
    """The measured seconds of the pair with the least predicted ones, over the least measured ones."""
    return min(figures)[1] / min(measured for _, measured in figures)


def print_rows(path: Path, directory: Path, arguments: argparse.Namespace) -> list[tuple[float, float]]:
    """Rewrite one module in all ways, time all of them by turns, and print a row for each limit.

    Returns the predicted and the measured seconds of each program, the one that came in among them.
    """
    module = read_module(str(path), new_context()).module
    signature = read_signature(module)
    inputs = path.with_name(path.name.partition(".mlir")[0] + ".npz")
    arrays = load_inputs(str(inputs), signature) if inputs.exists() else random_inputs(signature, seed=0)
    memory = measure_memory(serialise(module, "bytecode"))
    limits = [memory.peak - memory.temp + memory.temp // part for part in PARTS]
    target = [f"--target={arguments.target}"] if arguments.target else []
    ways = {f"{size}": [f"--size-threshold={size}", f"--split-size={size}"] for size in GRID}
    ways |= {f"limit {limit}": [f"--memory-limit={limit}", *target] for limit in limits}
    peaks, slices = {}, {}
    programs = {"": compile_program(serialise(module, "bytecode"))}
    predicted = {"": read_timeline(inlined(path)).seconds}
    run_program(programs[""], arrays)
    known: dict[bytes, str] = {}
    same: dict[str, str] = {}
    for name, options in ways.items():
        smaller = directory / "smaller.mlir"
        done = subprocess.run(
            [BIN / "exla-opt", path, *options, "--remarks=passed", "-o", smaller],
            check=True,
            capture_output=True,
            text=True,
        )
        slices[name] = done.stderr.partition("in slices of ")[2].partition(":")[0] or "-"
        rewritten = read_module(str(smaller), new_context()).module
        data = serialise(rewritten, "bytecode")
        same[name] = known.setdefault(smaller.read_bytes(), name)
        if same[name] == name:
            programs[name] = compile_program(data)
            predicted[name] = read_timeline(rewritten).seconds
            run_program(programs[name], arrays)
        peaks[name] = measure_memory(data).peak
    measured = dict(zip(programs, time_programs(list(programs.values()), arrays, arguments.repeat), strict=True))
    times = {name: measured[same[name]] for name in ways}
    for limit in limits:
        chosen = f"limit {limit}"
        within = [size for size in GRID if peaks[size] <= limit]
        best = min(within, key=lambda size: times[size], default="")
        cells = [path.name, format_size(limit), format_size(peaks[chosen]), slices[chosen]]
        cells.append(f"{times[chosen] * 1e3:.1f}")
        cells += [best, f"{times[best] * 1e3:.1f}", f"{times[chosen] / times[best]:.2f}"] if best else ["none", "", ""]
        fastest = min(times[size] for size in GRID)
        print(f"| {' | '.join([*cells, f'{fastest * 1e3:.1f}', f'{times[chosen] / fastest:.2f}'])} |", flush=True)

    return [(predicted[name], measured[name]) for name in programs]


def inlined(path: Path) -> ir.Module:
    """The module without its calls, which hide what they take."""
    module = read_module(str(path), new_context()).module
    run_pipeline(module, ["normalise"], Options())
    return module


if __name__ == "__main__":
    main()
