"""What is said to fit, and what fits: limits on programs, each answer held against the compiler; prints a table.

    python benchmarks/fits.py --modules DIRECTORY
    python benchmarks/fits.py --modules DIRECTORY --target=cuda:h200 --of-temp=0.25

A limit is arguments and results and a part of the temporary memory that the program has without a split (--of-temp).
exla-opt searches as it does on the command line; then what it would write is compiled once more, from its text. A
false "fits" is a program above its limit that was said to be within it, a false "no" one within it that was said not
to be. Each module has a process of its own with a time limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from jaxlib.mlir import ir

from exla_opt.budget.fit import fit
from exla_opt.budget.measured import Measure
from exla_opt.cli.common import collect_rarely
from exla_opt.cli.judge import judge_of
from exla_opt.ir.context import new_context
from exla_opt.ir.read import read_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, machine_of
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from exla_opt.runtime.target import compiled_memory, parse_target
from exla_opt.sizes import format_size

MET, NOT_MET, FALSE_FITS, FALSE_NO = "met", "not met", "FALSE FITS", "FALSE NO"


def main() -> None:
    """Print one row a module and limit, and how many answers of each kind there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, required=True, help="directory of modules, or one module")
    parser.add_argument("--pattern", default="*.mlir*", help="glob of names [*.mlir*]")
    parser.add_argument("--of-temp", default="1.0,0.5,0.25,0.1", help="limits as parts of temp [1.0,0.5,0.25,0.1]")
    parser.add_argument("--least", type=float, default=1e6, help="programs with less temp are left out, bytes [1e6]")
    parser.add_argument("--target", help="as for exla-opt; this machine's CPU without")
    parser.add_argument("--predicted", action="store_true", help="ask no compiler, to see what predictions alone do")
    parser.add_argument("--part", default="0/1", help="every Nth module from the Ith, as I/N [0/1]")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each module [900]")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(rows_of(arguments)))
        return
    first, step = map(int, arguments.part.split("/"))
    print("| module | temp | limit | exla-opt | compiled | compiles | answer | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    answers: Counter[tuple[str, str]] = Counter()
    spent: Counter[str] = Counter()
    for path in sorted(arguments.modules.glob(arguments.pattern))[first::step]:
        for part, cells, answer, seconds in ask(path, arguments):
            print(f"| {path.name.partition('.mlir')[0]} | {cells} | {answer} | {seconds:.1f} |", flush=True)
            answers[part, answer] += 1
            spent[part] += seconds
    kinds = sorted({answer for _, answer in answers})
    print(f"\n| of temp | {' | '.join(kinds)} | s |\n| --- |{' --- |' * (len(kinds) + 1)}")
    for part in dict.fromkeys(part for part, _ in answers):
        counts = " | ".join(str(answers[part, kind]) for kind in kinds)
        print(f"| {part} | {counts} | {spent[part]:.0f} |")


def ask(path: Path, arguments: argparse.Namespace) -> list[tuple[str, str, str, float]]:
    """For each limit its part of temp, the cells from temp to the compiled peak, the answer, and the seconds."""
    command = [sys.executable, __file__, "--worker", f"--modules={path}", f"--of-temp={arguments.of_temp}"]
    command += [f"--least={arguments.least}", *(["--predicted"] if arguments.predicted else [])]
    command += [f"--target={arguments.target}"] if arguments.target else []
    # Else jax's CUDA plugin, where it is installed, looks for a driver and does not load.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout, env=environment)
    except subprocess.TimeoutExpired:
        return [("-", "| | | | ", f"over {arguments.timeout:g} s", arguments.timeout)]
    if done.returncode:
        return [("-", "| | | | ", (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:80], 0.0)]
    found: list[tuple[str, str, str, float]] = [tuple(row) for row in json.loads(done.stdout)]  # type: ignore[misc]
    return found


def rows_of(arguments: argparse.Namespace) -> list[tuple[str, str, str, float]]:
    """The answers for one module, in this process."""
    collect_rarely()  # as the command does
    judge = judge_of(arguments.target, arguments.modules.name)
    context = new_context()
    data = serialise(read_module(str(arguments.modules), context).module, "bytecode")
    target = parse_target(arguments.target or "cpu")
    before = compiled_memory(data, target).memory
    if before.temp < arguments.least:
        return []
    rows = []
    for part in arguments.of_temp.split(","):
        limit = before.peak - before.temp + int(float(part) * before.temp)
        start = time.perf_counter()
        module = ir.Module.parse(data, context)
        machine = CPU if arguments.target is None else machine_of(arguments.target)
        asked: list[bytes] = []
        measure = None if arguments.predicted else counting(judge.measure, asked)
        found = fit(module, DEFAULT_PASSES, Options(machine=machine), limit, measure)
        seconds = time.perf_counter() - start
        peak = compiled_memory(serialise(found.module, "text"), target).memory.peak
        answer = (MET if peak <= limit else FALSE_FITS) if found.fits else FALSE_NO if peak <= limit else NOT_MET
        slices = format_size(found.options.slice_bytes) if found.options.split_size else "unsplit"
        how = f"{'fits' if found.fits else 'no'}, {slices}{'' if found.compiled else ', predicted'}"
        if not found.fits and found.bound is not None:
            how += f", {found.peak / found.bound.bytes:.2f} x the bound"
        cells = [format_size(before.temp), format_size(limit), how, format_size(peak), str(len(asked))]
        rows.append((part, " | ".join(cells), answer, seconds))
    return rows


def counting(measure: Measure | None, asked: list[bytes]) -> Measure | None:
    """A compiler that keeps what it was asked about."""
    if measure is None:
        return None

    def counted(data: bytes) -> int:
        asked.append(data)
        return measure(data)

    return counted


if __name__ == "__main__":
    main()
