"""The predicted memory against what compilers planned, for many programs of two halves; prints a table.

    python benchmarks/zoo_predictions.py DIRECTORY [--platform=cpu] [--misses]

DIRECTORY holds truth.json, a list of {name, form, half, platform, file, peak, temp}, bytes as a compiler planned
them, and the modules that it names (benchmarks/zoo/measure.py writes both). Rules are fitted to the half called
"fitting"; the other half is counted, and not shown one by one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import Machine, machine_of
from exla_opt.memory.peak import Memory, predict

Row = dict[str, Any]
# A temp below this is nothing to be right about.
_LEAST_TEMP = 10**6


def main() -> None:
    """Print both halves, and with --misses the programs of the fitting half that are off by more than a quarter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="holds truth.json and modules")
    parser.add_argument("--platform", default="cpu", help="cpu or h200 [cpu]")
    parser.add_argument("--misses", action="store_true", help="also print what is wrong in the fitting half")
    arguments = parser.parse_args()
    machine = machine_of("cpu" if arguments.platform == "cpu" else f"cuda:{arguments.platform}")
    rows = json.loads((arguments.directory / "truth.json").read_text())
    rows = [row for row in rows if row["platform"] == arguments.platform and row.get("peak")]
    found = [(row, predicted(row, arguments.directory, machine)) for row in rows]
    print("| half | form | modules | peak within a quarter | temp within a quarter, of those over 1 MB |")
    print("| --- | --- | --- | --- | --- |")
    for half in ("fitting", "held out"):
        own = [pair for pair in found if pair[0]["half"] == half]
        for form in (*sorted({row["form"] for row, _ in own}), None):
            print_row(half, form, [pair for pair in own if form in (None, pair[0]["form"])])
    if arguments.misses:
        print_misses(pair for pair in found if pair[0]["half"] == "fitting")


def predicted(row: Row, directory: Path, machine: Machine) -> Memory:
    """What the model says of one module."""
    path = directory / "modules" / Path(row["file"]).name
    with new_context() as context:
        return predict(parse_module(path.name, path.read_bytes(), context).module, machine)


def is_near(ratio: float) -> bool:
    """Within a quarter."""
    return 0.8 <= ratio <= 1.25


def print_row(half: str, form: str | None, found: list[tuple[Row, Memory]]) -> None:
    """One row of the table: the share of modules that are near."""
    peaks = [is_near(memory.peak / row["peak"]) for row, memory in found]
    temps = [is_near(memory.temp / row["temp"]) for row, memory in found if row["temp"] > _LEAST_TEMP]
    cells = [f"{sum(right)} ({sum(right) / max(len(right), 1):.1%}) of {len(right)}" for right in (peaks, temps)]
    print(f"| {half} | {form or 'all'} | {len(found)} | {cells[0]} | {cells[1]} |")


def print_misses(found: Iterable[tuple[Row, Memory]]) -> None:
    """What is off by more than a quarter of the peak, or else of the temp, worst first."""
    wrong = []
    for row, memory in found:
        peak, temp = memory.peak / row["peak"], memory.temp / max(row["temp"], 1)
        if not is_near(peak) or (row["temp"] > _LEAST_TEMP and not is_near(temp)):
            wrong.append((max(peak, 1 / peak), f"{row['name']:40} {row['form']:8}", row, memory))
    print("\n| module | form | peak | temp | predicted temp | ratio of peaks |\n| --- | --- | --- | --- | --- | --- |")
    for _, name, row, memory in sorted(wrong, key=lambda each: (-each[0], each[1])):
        sizes = " | ".join(f"{value / 1e6:9.1f}" for value in (row["peak"], row["temp"], memory.temp))
        print(f"| {name.replace(' ' * 1, ' ', 1)} | {sizes} | {memory.peak / row['peak']:.2f} |")


if __name__ == "__main__":
    main()
