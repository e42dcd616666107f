"""The predicted memory against what XLA plans, for modules and what they are split to; prints a Markdown table.

    python benchmarks/predictions.py --modules DIRECTORY

Small modules (`*_small_*`) are split with a threshold of 64KB, middle ones (`*_mid_*`) with 10MB, others with 100MB and
with 25MB. `--target=cuda:h200` is for a GPU, which need not be here; modules that call LAPACK do not compile for one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import read_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.target import Target, compiled_memory, parse_target
from exla_opt.sizes import format_size

Peaks = tuple[int, int]


def main() -> None:
    """Print a row for every prediction that is off by more than a quarter, then how many were not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of .mlir and .mlir.gz files")
    parser.add_argument("--target", default="cpu", help="whose compiler plans the memory [cpu]")
    arguments = parser.parse_args()
    target = parse_target(arguments.target)
    paths = sorted(path for path in arguments.modules.iterdir() if path.name.endswith((".mlir", ".mlir.gz")))
    near = closer = count = winners = pairs = 0
    print("| module | threshold | predicted | planned | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for path in paths:
        before: Peaks | None = None
        for threshold in (None, *thresholds(path.name)):
            try:
                predicted, planned = peaks(path, threshold, target)
            except InputError as error:
                print(f"| {path.name} | {error.message} | | | |")
                break
            ratio = predicted / planned
            count += 1
            near += 0.8 <= ratio <= 1.25
            closer += 0.9 <= ratio <= 1.1
            if before is None:
                before = predicted, planned
            elif abs(planned - before[1]) > 0.05 * before[1]:
                pairs += 1
                winners += (predicted < before[0]) == (planned < before[1])
            if not 0.8 <= ratio <= 1.25:
                name = "none" if threshold is None else format_size(threshold)
                figures = f"{format_size(predicted)} | {format_size(planned)} | {ratio:.2f}"
                print(f"| {path.name} | {name} | {figures} |", flush=True)
    print(f"\nWithin a quarter: {near} of {count}; within a tenth: {closer}.")
    print(f"Which of before and after is smaller: right in {winners} of {pairs}.")


def thresholds(name: str) -> Iterator[int]:
    """The sizes, in bytes, with which a module of this name is split."""
    if "_small_" in name:
        yield 64_000
    elif "_mid_" in name:
        yield 10_000_000
    else:
        yield from (100_000_000, 25_000_000)


def peaks(path: Path, threshold: int | None, target: Target) -> Peaks:
    """The predicted and the planned peak, in bytes, of a module that is only normalised, or split."""
    with new_context() as context:
        module = read_module(str(path), context).module
        if threshold is None:
            run_pipeline(module, ("normalise",), Options())
        else:
            run_pipeline(module, DEFAULT_PASSES, Options(threshold, threshold // 2 if threshold < 10**6 else threshold))
        data = serialise(module, "bytecode")
        return predict(module, GPU if target.description else CPU).peak, compiled_memory(data, target).memory.peak


if __name__ == "__main__":
    main()
