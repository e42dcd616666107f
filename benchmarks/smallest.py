"""The smallest memory limit that exla-opt names, and the least that any hand-chosen sizes reach; a Markdown table.

    python benchmarks/smallest.py --modules DIRECTORY --pattern '*_sgpr_big_*'

Each module is given a limit that cannot be met. By hand, slices of 62.5 KB to 64 MB are tried, each with the threshold
as large and four times as large; all are compiled, none is run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from limits import figures_of
from memory import BIN

from exla_opt.sizes import format_size, parse_size

SIZES = tuple(2**power * 62_500 for power in range(11))
THRESHOLDS = (1, 4)


def main() -> None:
    """Print one row a module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of .mlir and .mlir.gz files")
    parser.add_argument("--pattern", default="*_big_*", help="glob of names [*_big_*]")
    parser.add_argument("--target", default="cpu", help="whose compiler plans the memory [cpu]")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each command [600]")
    arguments = parser.parse_args()
    print("| module | named | least by hand | slices | threshold | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        smaller = Path(directory) / "smaller.mlir"
        for path in sorted(arguments.modules.glob(arguments.pattern)):
            if not path.name.endswith((".mlir", ".mlir.gz")):
                continue
            said = rewrite(path, smaller, ["--memory-limit=1", f"--target={arguments.target}"], arguments.timeout)
            found = re.search(r"smallest limit that was reached is (\S+) \(", said)
            if not found:
                print(f"| {path.name} | {said.strip().splitlines()[-1]} | | | | |", flush=True)
                continue
            tried: list[tuple[int, int, int]] = []
            for size in SIZES:
                for threshold in (size * times for times in THRESHOLDS):
                    sizes = [f"--split-size={size}", f"--size-threshold={threshold}"]
                    rewrite(path, smaller, sizes, arguments.timeout)
                    figures = figures_of(smaller, Path(directory), arguments)
                    if not isinstance(figures, str):
                        tried.append((figures["peak_bytes"], size, threshold))
            least, size, threshold = min(tried)
            ratio = parse_size(found[1]) / least
            cells = [found[1], format_size(least), format_size(size), format_size(threshold), f"{ratio:.2f}"]
            print(f"| {path.name} | {' | '.join(cells)} |", flush=True)


def rewrite(path: Path, smaller: Path, options: list[str], timeout: float) -> str:
    """Run exla-opt; returns what it says."""
    command = [str(BIN / "exla-opt"), str(path), "-o", str(smaller), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout).stderr


if __name__ == "__main__":
    main()
