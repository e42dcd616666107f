"""Memory limits on big modules: is each met, as the compiler says? Compiled, never run; prints a Markdown table.

    python benchmarks/limits.py --modules DIRECTORY --target=cpu

The limits are those of `--above`, on top of the module's arguments and results. For a GPU the last two columns are the
estimated time of a run, and how many times that of the module as it came.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from memory import BIN, compiled_bytes, run

from exla_opt.sizes import format_size, parse_size


def main() -> None:
    """Print one row a module and limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of .mlir and .mlir.gz files")
    parser.add_argument("--pattern", action="append", help="glob of names; may be repeated [*_big_*, *_mnist_*]")
    parser.add_argument("--above", default="64MB,256MB,1GB,4GB", help="limits, comma-separated [64MB,256MB,1GB,4GB]")
    parser.add_argument("--target", default="", help="as for exla-opt; this machine's CPU without")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each command [300]")
    arguments = parser.parse_args()
    patterns = arguments.pattern or ["*_big_*", "*_mnist_*"]
    paths = {path for pattern in patterns for path in arguments.modules.glob(pattern)}
    heads = ["module", "limit", "peak", "slices", "exla-opt, s", ""]
    heads += [] if arguments.target in ("", "cpu") else ["est. ms", "x before"]
    print("| " + " | ".join(heads) + " |")
    print("| " + " | ".join("---" for _ in heads) + " |")
    with tempfile.TemporaryDirectory() as directory:
        for path in sorted(path for path in paths if path.name.endswith((".mlir", ".mlir.gz"))):
            before = figures_of(path, Path(directory), arguments)
            if isinstance(before, str):
                print(f"| {path.name} | {before} | | | | |", flush=True)
                continue
            held = before["peak_bytes"] - before["temp_bytes"]
            for above in arguments.above.split(","):
                limit = held + parse_size(above)
                print(f"| {path.name} | {row(path, Path(directory), limit, before, arguments)} |", flush=True)


def figures_of(path: Path, directory: Path, arguments: argparse.Namespace) -> dict[str, Any] | str:
    """What the target's compiler plans for a module, in bytes and, for a GPU, in time; or why there is nothing."""
    if arguments.target in ("", "cpu"):
        return compiled_bytes(path, directory, arguments.timeout)
    figures = directory / "figures.json"
    command = [BIN / "exla-run", path, f"--target={arguments.target}", "--limit=1PB", "--json", figures]
    failure = run(command, arguments.timeout)
    if failure:
        return failure
    module: dict[str, Any] = json.loads(figures.read_text())["modules"][0]
    return module


def row(path: Path, directory: Path, limit: int, before: dict[str, Any], arguments: argparse.Namespace) -> str:
    """The cells after the module's name: `met` where the compiled peak is within the limit, else what exla-opt said."""
    smaller = directory / "smaller.mlir"
    command = [str(BIN / "exla-opt"), str(path), f"--memory-limit={limit}", "--remarks=passed", "-o", str(smaller)]
    command += [f"--target={arguments.target}"] if arguments.target else []
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout)
    seconds = time.perf_counter() - start
    after = figures_of(smaller, directory, arguments)
    peak = after if isinstance(after, str) else format_size(after["peak_bytes"])
    slices = re.search(r"in slices of (\S+):", done.stderr)
    missed = re.search(r"smallest limit that was reached is (\S+) \(.*?\), due to (.*)", done.stderr)
    met = not isinstance(after, str) and after["peak_bytes"] <= limit
    verdict = f"said: {missed[1]}, {missed[2][:60]}" if missed else "met" if met else "NOT MET"
    cells = [format_size(limit), peak, slices[1] if slices else "-", f"{seconds:.1f}", verdict]
    if arguments.target not in ("", "cpu"):
        cells += ["-", "-"] if isinstance(after, str) else times(before.get("estimated"), after.get("estimated"))
    return " | ".join(cells)


def times(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """The cells of the estimated time."""
    if before is None or after is None:
        return ["-", "-"]
    least = "at least " if after["at_least"] else ""
    return [f"{least}{after['seconds'] * 1e3:.2f}", f"{after['seconds'] / before['seconds']:.2f}"]


if __name__ == "__main__":
    main()
