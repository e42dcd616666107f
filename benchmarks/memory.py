"""Memory of modules before and after exla-opt: compiled, never run; prints a Markdown table.

    python benchmarks/memory.py --modules DIRECTORY --size-threshold=100MB --split-size=100MB

Each compile is a process of its own with a time limit, so that a module which XLA cannot digest costs one row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BIN = Path(sys.executable).parent


def main() -> None:
    """Print one row a module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of .mlir and .mlir.gz files")
    parser.add_argument("--pattern", action="append", help="glob of names; may be repeated [*_big_*, *_mnist_*]")
    parser.add_argument("--size-threshold", default="100MB")
    parser.add_argument("--split-size", default="100MB")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for each command [180]")
    arguments = parser.parse_args()
    patterns = arguments.pattern or ["*_big_*", "*_mnist_*"]
    paths = {path for pattern in patterns for path in arguments.modules.glob(pattern)}
    chosen = sorted(path for path in paths if path.name.endswith((".mlir", ".mlir.gz")))
    if not chosen:
        parser.error(f"no modules named {' or '.join(patterns)} in {arguments.modules}")
    sizes = [f"--size-threshold={arguments.size_threshold}", f"--split-size={arguments.split_size}"]
    print("| module | temp before, GB | after, GB | ratio | peak after, GB | exla-opt, s |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        for path in chosen:
            print(f"| {path.name} | {row(path, Path(directory), sizes, arguments.timeout)} |", flush=True)


def row(path: Path, directory: Path, sizes: Sequence[str], timeout: float) -> str:
    """The cells after the module's name; what failed stands in the cell of its step."""
    before = compiled_bytes(path, directory, timeout)
    smaller = directory / "smaller.mlir"
    start = time.perf_counter()
    if failure := run([BIN / "exla-opt", path, *sizes, "--quiet", "-o", smaller], timeout):
        return f"{gigabytes(before, 'temp_bytes')} | exla-opt: {failure} | | |"
    seconds = time.perf_counter() - start
    after = compiled_bytes(smaller, directory, timeout)
    cells = [gigabytes(before, "temp_bytes"), gigabytes(after, "temp_bytes"), "", gigabytes(after, "peak_bytes")]
    if isinstance(before, dict) and isinstance(after, dict) and before["temp_bytes"]:
        cells[2] = f"{after['temp_bytes'] / before['temp_bytes']:.3f}"
    return " | ".join([*cells, f"{seconds:.2f}"])


def compiled_bytes(path: Path, directory: Path, timeout: float) -> dict[str, int] | str:
    """The memory figures of a module as exla-run gives them, or why there are none."""
    figures = directory / "figures.json"
    failure = run([BIN / "exla-run", path, "--no-run", "--json", figures], timeout)
    if failure:
        return failure
    module: dict[str, int] = json.loads(figures.read_text())["modules"][0]
    return module


def run(command: Sequence[str | Path], timeout: float) -> str:
    """Run a command; return "" or, in a few words, how it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"over {timeout:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:80]
    return ""


def gigabytes(figures: dict[str, int] | str, name: str) -> str:
    """A figure in GB with three digits after the point, or the failure."""
    return figures if isinstance(figures, str) else f"{figures[name] / 1e9:.3f}"


if __name__ == "__main__":
    main()
