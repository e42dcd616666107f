"""Programs before and after exla-opt on a GPU that is here: memory, seconds and results, against what was estimated.

    python -m benchmarks.on_gpu prepare DIRECTORY          # anywhere, with exla-opt[cuda]
    python -m benchmarks.on_gpu measure DIRECTORY          # on a machine with the GPU

`prepare` searches for a program within arguments + results + a part of temp (--of-temp) for each DIRECTORY/*.mlir, or
splits it into slices of that part (--split). It writes the program, and what XLA plans and exla-run estimates without a
GPU for the original and for it, to DIRECTORY/prepared. `measure` compiles both as XLA does on the GPU, runs them on the
same inputs, compares the results, and times them by turns. It writes DIRECTORY/measured/NAME.json, with the seconds of
each kernel where --kernels is given, and prints a table. What is there already is not done again. `table` prints the
table of what was measured.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

SEED = 0
# A measured time is that of at least so many seconds of runs one after the other, and of so many runs at most.
LEAST_SECONDS, MOST_RUNS = 0.1, 50
FORMS = ("before", "after")


def main() -> None:
    """Do one of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "measure", "table"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--target", default="cuda:h200", help="what is prepared for [%(default)s]")
    parser.add_argument("--of-temp", type=float, default=0.125, help="the limit as a part of temp [%(default)s]")
    parser.add_argument("--split", action="store_true", help="slices of that part of temp, instead of a search")
    parser.add_argument("--least", type=float, default=1e6, help="programs with less temp are left out, bytes [1e6]")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each program [300]")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which nothing more is begun")
    parser.add_argument("--part", default="0/1", help="every Nth program from the Ith, as I/N [0/1]")
    parser.add_argument("--only", nargs="*", help="the programs of these names, in this order")
    parser.add_argument("--kernels", action="store_true", help="profile one run of each program too")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        {"prepare": prepare, "measure": measure_all}[arguments.step](arguments)
        return
    if arguments.step != "table":
        run_workers(arguments)
    print_table(arguments.directory / "measured")


def run_workers(arguments: argparse.Namespace) -> None:
    """A process for each program to prepare; one for all to measure, and another after a program that ended it."""
    first, step = map(int, arguments.part.split("/"))
    where, end = (".", ".mlir") if arguments.step == "prepare" else ("prepared", ".json")
    found = sorted(path.name.removesuffix(end) for path in (arguments.directory / where).glob(f"*{end}"))
    names = arguments.only or found[first::step]
    target = arguments.directory / ("prepared" if arguments.step == "prepare" else "measured")
    target.mkdir(exist_ok=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.on_gpu", *sys.argv[1:], "--worker"]
    if arguments.step == "prepare":
        for name in names:
            if (target / f"{name}.json").exists():
                continue
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
            try:
                done = subprocess.run(
                    [*command, name], capture_output=True, text=True, timeout=arguments.timeout, env=environment
                )
                said = (done.stdout.strip() or done.stderr.strip() or str(done.returncode)).splitlines()[-1][:200]
            except subprocess.TimeoutExpired:
                said = "too long"
            print(f"{name}: {said}", flush=True)
        return
    ready = [name for name in names if (arguments.directory / "prepared" / f"{name}.json").exists()]
    while left := [name for name in ready if not (target / f"{name}.json").exists()]:
        rest = arguments.budget - (time.monotonic() - start)
        if rest <= 0:
            print(f"not measured: {' '.join(left)}")
            return
        status = subprocess.run([*command, f"{rest}:{','.join(left)}"]).returncode
        missing = [name for name in left if not (target / f"{name}.json").exists()]
        if status and missing:  # the first one without a result ended the process
            (target / f"{missing[0]}.json").write_text(json.dumps({"error": f"exit status {status}"}))


def prepare(arguments: argparse.Namespace) -> None:
    """Search for one program, and write what was found and what is expected of both."""
    from exla_opt.budget.fit import fit
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import read_module
    from exla_opt.ir.write import serialise
    from exla_opt.memory.machine import machine_of
    from exla_opt.options import Options
    from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
    from exla_opt.runtime.judge import judge_of
    from exla_opt.runtime.target import compiled_memory, parse_target

    name, directory = arguments.worker, arguments.directory / "prepared"
    module = read_module(str(arguments.directory / f"{name}.mlir"), new_context()).module
    before = serialise(module, "bytecode")
    target = parse_target(arguments.target)
    memory = compiled_memory(before, target).memory
    if memory.temp < arguments.least:
        (directory / f"{name}.json").write_text(json.dumps({"error": f"temp of {memory.temp} bytes"}))
        print(f"temp of {memory.temp} bytes")
        return
    part, options = int(arguments.of_temp * memory.temp), Options(machine=machine_of(arguments.target))
    start = time.perf_counter()
    if arguments.split:
        run_pipeline(module, DEFAULT_PASSES, replace(options, size_threshold=2 * part, split_size=part))
    else:
        limit = memory.peak - memory.temp + part
        module = fit(module, DEFAULT_PASSES, options, limit, judge_of(arguments.target).measure).module
    row: dict[str, Any] = {"limit": memory.peak - memory.temp + part, "seconds": time.perf_counter() - start}
    for form, data in zip(FORMS, (before, serialise(module, "bytecode")), strict=True):
        (directory / f"{name}.{form}.mlirbc").write_bytes(data)
        row[form] = expected(data, target)
    (directory / f"{name}.json").write_text(json.dumps(row))
    print(f"{row['seconds']:.1f} s: {row['before']} {row['after']}")


def expected(module: bytes, target: Any) -> dict[str, Any]:
    """The peak with each library of matrix products, and the estimated time."""
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.runtime.target import compiled_memory

    row: dict[str, Any] = {}
    for gemm in ("Triton", "cuBLAS"):
        try:
            found = compiled_memory(module, target, (gemm,))
        except InputError as error:
            row[gemm] = None
            row.setdefault("note", error.message)
            continue
        row[gemm] = found.memory.peak
        if found.time is not None:
            row |= {"seconds": found.time.seconds, "launches": found.time.launches, "at least": found.time.at_least}
    return row


def measure_all(arguments: argparse.Namespace) -> None:
    """Measure programs until the seconds are over."""
    seconds, _, names = arguments.worker.partition(":")
    start = time.monotonic()
    for name in names.split(","):
        if time.monotonic() - start > float(seconds):
            return
        begun = time.monotonic()
        try:
            row = measure(name, arguments.directory / "prepared", arguments.kernels)
        except Exception as error:  # whatever a program, XLA or a driver raises: it costs this program only
            row = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}
        row["wall"] = time.monotonic() - begun
        (arguments.directory / "measured" / f"{name}.json").write_text(json.dumps(row))
        print(f"{name}: {row.get('error') or row['equal']}, {row['wall']:.1f} s", flush=True)


def measure(name: str, directory: Path, kernels: bool) -> dict[str, Any]:
    """Compile, run, compare and time both forms of one program on the GPU."""
    from exla_opt.ir.context import new_context
    from exla_opt.ir.read import read_module
    from exla_opt.runtime.check import compare_results
    from exla_opt.runtime.compile import compile_program, run_program
    from exla_opt.runtime.draws import choose_inputs
    from exla_opt.runtime.memory import memory_of
    from exla_opt.runtime.pjrt import optimised_hlo
    from exla_opt.runtime.tf32 import rounds_to_tf32

    prepared = json.loads((directory / f"{name}.json").read_text())
    if "error" in prepared:
        return {"error": prepared["error"]}
    row: dict[str, Any] = {"prepared": prepared}
    programs = {}
    for form in FORMS:
        start = time.perf_counter()
        programs[form] = compile_program((directory / f"{name}.{form}.mlirbc").read_bytes(), "cuda")
        memory = memory_of(programs[form].executable)
        row[form] = {
            "compile": time.perf_counter() - start,
            "peak": memory.peak,
            "temp": memory.temp,
            "hlo": optimised_hlo(programs[form].executable),
        }
    module = read_module(str(directory / f"{name}.before.mlirbc"), new_context()).module
    inputs, wanted = choose_inputs(module, SEED, lambda arrays: run_program(programs["before"], arrays))
    pool = peak_in_use(programs["after"])
    found = run_program(programs["after"], inputs)
    row["after"]["in use"] = [pool, peak_in_use(programs["after"])]
    compared = compare_results(
        wanted,
        found,
        lambda arrays: run_program(programs["before"], arrays),
        inputs,
        tf32=rounds_to_tf32(module),
    )
    row["equal"] = all(one.passed for one in compared)
    row["error of"] = [(one.absolute.value / one.largest if one.largest else 0.0) for one in compared][:20]
    if not row["equal"]:
        row["compared"] = [repr(one)[:300] for one in compared if not one.passed][:5]
    del wanted, found
    times = time_by_turns([programs[form] for form in FORMS], inputs)
    for form, seconds in zip(FORMS, times, strict=True):
        row[form]["seconds"] = seconds
        if kernels:
            row[form]["kernels"] = profile(programs[form], inputs)
    return row


def peak_in_use(program: Any) -> int:
    """The most bytes that jax has taken from the GPU's memory so far."""
    return int((program.devices[0].memory_stats() or {}).get("peak_bytes_in_use", 0))


def put(program: Any, arrays: list[Any]) -> list[Any]:
    """The inputs on the GPU."""
    import jax

    with jax.enable_x64(True):
        found = [jax.device_put(array, program.devices[0]) for array in arrays]
        jax.block_until_ready(found)
        return found


def time_by_turns(programs: list[Any], arrays: list[Any]) -> list[float]:
    """The median seconds of a run of each program. Where arguments are donated, each run gets new ones.

    The runs of one measurement are queued one after the other, so that the time in which the host starts the first
    kernel counts once.
    """
    import jax

    from exla_opt.runtime import pjrt

    found: list[list[float]] = [[] for _ in programs]
    runs = [1 for _ in programs]
    for turn in range(5):
        for number, program in enumerate(programs):
            buffers = put(program, arrays)
            start = time.perf_counter()
            done = pjrt.execute(program.executable, buffers)
            if any(buffer.is_deleted() for buffer in buffers):
                runs[number] = 1
            for _ in range(runs[number] - 1):
                done = pjrt.execute(program.executable, buffers)
            jax.block_until_ready(done)
            seconds = (time.perf_counter() - start) / runs[number]
            if turn == 0:
                runs[number] = max(1, min(MOST_RUNS, int(LEAST_SECONDS / 4 / max(seconds, 1e-6))))
            else:
                found[number].append(seconds)
    return [statistics.median(each) for each in found]


def profile(program: Any, arrays: list[Any]) -> list[tuple[str, str, float, float]]:
    """Each kernel of one run: its name, the HLO instruction, its start and its duration, in seconds."""
    import jax

    from exla_opt.runtime import pjrt

    buffers = put(program, arrays)
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 0
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            jax.block_until_ready(pjrt.execute(program.executable, buffers))
        found = []
        for file in glob.glob(f"{directory}/**/*.xplane.pb", recursive=True):
            for plane in jax.profiler.ProfileData.from_file(file).planes:
                if not plane.name.startswith("/device:GPU"):
                    continue
                for line in plane.lines:
                    if not line.name.startswith("Stream"):
                        continue
                    for event in line.events:
                        stats = dict(event.stats)
                        found.append(
                            (
                                event.name[:80],
                                str(stats.get("hlo_op", "")),
                                event.start_ns / 1e9,
                                event.duration_ns / 1e9,
                            )
                        )
    return found[:3000]


def print_table(directory: Path) -> None:
    """Print what was measured: bytes in MB and times in ms, each next to what was said without the GPU."""
    heads = ["program", "equal", "limit, MB", "peak", "planned", "after", "planned", "ms", "estimated"]
    heads += ["after", "estimated", "ratio", "estimated"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for path in sorted(directory.glob("*.json")):
        row = json.loads(path.read_text())
        name = path.name.removesuffix(".json")
        if "error" in row:
            print(f"| {name} | {row['error'][:100]} |")
            continue
        prepared = row["prepared"]
        cells = [name, "yes" if row["equal"] else "NO", f"{prepared['limit'] / 1e6:,.0f}"]
        for form in FORMS:
            planned = max(prepared[form][gemm] or 0 for gemm in ("Triton", "cuBLAS"))
            cells += [f"{row[form]['peak'] / 1e6:,.1f}", f"{planned / 1e6:,.1f}"]
        estimated = [prepared[form].get("seconds") for form in FORMS]
        for form, seconds in zip(FORMS, estimated, strict=True):
            cells += [f"{row[form]['seconds'] * 1e3:.3f}", f"{seconds * 1e3:.3f}" if seconds else "-"]
        cells.append(f"{row['after']['seconds'] / row['before']['seconds']:.2f}")
        cells.append(f"{estimated[1] / estimated[0]:.2f}" if all(estimated) else "-")
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
