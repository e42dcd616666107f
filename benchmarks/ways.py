"""How well predicted seconds order what a limit search tries, on the programs of `wild`; prints a Markdown table.

    python -m benchmarks.ways
    python -m benchmarks.ways --only sinkhorn knn --repeat=5

Each program of middle size is rewritten in all ways that the search for a memory limit knows for a CPU, and all of them
run by turns in this process, but for those that take twelve times as long as it does. A row has Spearman's rank
correlation of the predicted and the measured seconds, and what the search would take within the limit, an eighth of the
temporary memory: its time over that of the fastest within it, and over that of the program as it came.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

# Before jax loads: a benchmark's output should be its table.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import fastest  # noqa: E402
from exla_opt.budget.fit import unsplit_options  # noqa: E402
from exla_opt.budget.search import Search  # noqa: E402
from exla_opt.budget.ways import ways  # noqa: E402
from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import parse_module  # noqa: E402
from exla_opt.ir.write import serialise  # noqa: E402
from exla_opt.options import Options  # noqa: E402
from exla_opt.pipeline import DEFAULT_PASSES  # noqa: E402
from exla_opt.runtime.compile import compile_program, run_program, time_programs  # noqa: E402
from exla_opt.runtime.memory import measure_memory  # noqa: E402

from .ranks import rank_correlation  # noqa: E402
from .wild.entry import Entry, export  # noqa: E402
from .wild.measure import LEAST_PART, geometric_mean, inputs_for  # noqa: E402
from .wild.programs import ENTRIES  # noqa: E402

# What takes so many times as long as the program that came is run once, and left out.
_TOO_SLOW = 12.0


@dataclass(frozen=True, slots=True)
class Row:
    """programs: how many different ones. correlation: of ranks. regret: over the fastest. ratio: over what came."""

    name: str
    programs: int
    correlation: float
    regret: float
    ratio: float


def main() -> None:
    """Print one row a program, and what they come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="programs whose name has this in it")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs of each [3]")
    arguments = parser.parse_args()
    print("| program | programs | rank correlation | chosen, over the fastest | over what came |")
    print("| --- | --- | --- | --- | --- |")
    rows = []
    for entry in ENTRIES:
        if arguments.only and not any(part in entry.name for part in arguments.only):
            continue
        if (row := measure(entry, arguments.repeat)) is not None:
            print(
                f"| {row.name} | {row.programs} | {row.correlation:.2f} | {row.regret:.2f} | {row.ratio:.2f} |",
                flush=True,
            )
            rows.append(row)
    if rows:
        regrets, ratios = [row.regret for row in rows], [row.ratio for row in rows]
        print(f"\n{len(rows)} programs; rank correlation: median {median(row.correlation for row in rows):.2f}.")
        print(f"Chosen over the fastest: geometric mean {geometric_mean(regrets):.2f}, worst {max(regrets):.2f}.")
        print(f"Over what came: geometric mean {geometric_mean(ratios):.2f}, worst {max(ratios):.2f}.")


def measure(entry: Entry, repeats: int) -> Row | None:
    """The row of one program; None where fewer than three different programs fit into the limit."""
    text = export(entry.function, entry.middle, entry.gradient)
    memory = measure_memory(text)
    limit = memory.peak - memory.temp + int(LEAST_PART * memory.temp)
    with new_context() as context:
        attempts = tried(Search(parse_module(entry.name, text.encode(), context).module, *_settings(limit)))
        different = {serialise(found.module, "bytecode"): found for found in reversed(attempts)}
    within = [(data, found) for data, found in different.items() if measure_memory(data).peak <= limit]
    programs = [compile_program(text), *(compile_program(data) for data, _ in within)]
    arrays = inputs_for(text, programs[0])
    once = [_seconds(program, arrays) for program in programs]
    kept = [index for index, seconds in enumerate(once) if seconds <= _TOO_SLOW * once[0]]
    if len(kept) < 4:
        return None
    measured = dict(zip(kept, time_programs([programs[index] for index in kept], arrays, repeats), strict=True))
    found = {id(within[index - 1][1]): measured[index] for index in kept[1:]}
    fitting = [attempt for attempt in attempts if id(attempt) in found]
    chosen = found[id(fastest(fitting)[0])]
    pairs = [(attempt.seconds, found[id(attempt)]) for attempt in fitting]
    return Row(entry.name, len(pairs), rank_correlation(pairs), chosen / min(found.values()), chosen / measured[0])


def _settings(limit: int) -> tuple[Sequence[str], Options, int, None, bool, None]:
    return DEFAULT_PASSES, Options(memory_limit=limit), limit, None, False, None


def tried(search: Search) -> list[Attempt]:
    """All ways of a program that has the limit of `search`."""
    options = Options(memory_limit=search.limit)
    unsplit = search.attempt(unsplit_options(options))
    search.attempt(replace(unsplit.options, memory_limit=search.limit))
    for way in ways(unsplit.predicted, unsplit.largest, options):
        for calls_in_loops in (False, True) if search.has_calls else (False,):
            search.attempt(replace(way, calls_in_loops=calls_in_loops))
    return search.attempts


def _seconds(program: object, arrays: object) -> float:
    run_program(program, arrays)  # type: ignore[arg-type]
    start = time.perf_counter()
    run_program(program, arrays)  # type: ignore[arg-type]
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
