"""Reports of programs that ran out of memory, as functions: are they cured? Prints a Markdown table and totals.

    python -m benchmarks.wild
    python -m benchmarks.wild --only sinkhorn knn --times=5 --markdown=table.md

At the report's size a program is only compiled: exla-opt gets arguments + results + 1 GB. The small size is split under
a tiny threshold, run and compared. With --times the middle size runs too, before and after, by turns, and the version
that people write by hand, where there is one. Its limit leaves the part of its temporary memory that the large one may
keep, and no less than an eighth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

# Before jax loads: a benchmark's output should be its table.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from exla_opt.ir.diagnostics import InputError  # noqa: E402
from exla_opt.runtime.memory import measure_memory  # noqa: E402
from exla_opt.sizes import format_size  # noqa: E402

from .entry import Entry, export  # noqa: E402
from .measure import Row, equality, geometric_mean, limit_of, rewrite, times  # noqa: E402
from .programs import ENTRIES  # noqa: E402

_HEAD = "| program | before | after | limit | | by hand | small size | run, s | time | against by hand | exla-opt, s |"


def main() -> None:
    """Measure the entries that were asked for, one row each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="programs whose name has this in it")
    parser.add_argument("--times", type=int, default=0, metavar="N", help="timed runs at the middle size [0: none]")
    parser.add_argument("--small", action="store_true", help="only compare at the small size")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="rows that are there are not measured again; keep new ones"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each run of exla-opt [600]")
    arguments = parser.parse_args()
    rows = _read(arguments.rows)
    chosen = [one for one in ENTRIES if not arguments.only or any(part in one.name for part in arguments.only)]
    lines = [_HEAD, "|" + " --- |" * (_HEAD.count("|") - 1)]
    print("\n".join(lines))
    found: list[Row] = []
    for entry in chosen:
        row = rows.get(entry.name) or measure(entry, arguments)
        if arguments.rows and entry.name not in rows:
            with arguments.rows.open("a") as file:
                file.write(json.dumps(row.as_json()) + "\n")
        found.append(row)
        lines.append(as_line(row, entry))
        print(lines[-1], flush=True)
        if row.holds:
            print(f"{row.name}: {row.holds}", file=sys.stderr, flush=True)
    lines += ["", *totals(found)]
    print("\n".join(lines[len(found) + 2 :]))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")


def _read(file: Path | None) -> dict[str, Row]:
    if file is None or not file.exists():
        return {}
    rows = [Row(**json.loads(line)) for line in file.read_text().splitlines()]
    return {row.name: row for row in rows}


def measure(entry: Entry, arguments: argparse.Namespace) -> Row:
    """All of one row; what fails is said in its place."""
    row = Row(entry.name, equal=equality(entry))
    if arguments.small:
        return row
    try:
        row = _memory(entry, row, arguments.timeout)
        if arguments.times:
            run, ratio, hand_ratio = times(entry, row.part, arguments.times, arguments.timeout)
            row = replace(row, run=run, ratio=ratio, hand_ratio=hand_ratio)
    except (InputError, RuntimeError, subprocess.TimeoutExpired) as error:
        return replace(row, holds=str(error).partition("\n")[0])
    return row


def _memory(entry: Entry, row: Row, patience: float) -> Row:
    text = export(entry.function, entry.reported, entry.gradient)
    memory = measure_memory(text)
    row = replace(row, before=memory.peak, temp=memory.temp, limit=limit_of(entry, memory))
    if entry.by_hand is not None:
        row = replace(row, by_hand=measure_memory(export(entry.by_hand, entry.reported, entry.gradient)).peak)
    start = time.perf_counter()
    smaller, complaint = rewrite(text, row.limit, patience)
    seconds = time.perf_counter() - start
    return replace(row, after=measure_memory(smaller).peak, seconds=seconds, holds=complaint)


def as_line(row: Row, entry: Entry) -> str:
    """The row as a line of the table."""
    sizes = [format_size(size) if size else "" for size in (row.before, row.after, row.limit)]
    met = "larger" if row.larger else "met" if row.met else "**not met**" if row.before else ""
    cells = [f"[{row.name}]({entry.link})", *sizes, met, format_size(row.by_hand) if row.by_hand else "", row.equal]
    cells += [_number(number) for number in (row.run, row.ratio, row.hand_ratio)]
    return f"| {' | '.join([*cells, f'{row.seconds:.0f}' if row.seconds else ''])} |"


def _number(number: float) -> str:
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}" if number else ""


def totals(rows: Sequence[Row]) -> Iterable[str]:
    """Sentences that sum up the table."""
    measured = [row for row in rows if row.before]
    equal = [row for row in rows if row.equal in ("equal", "unsplit")]
    unsplit = sum(row.equal == "unsplit" for row in rows)
    yield f"{len(rows)} programs; equal at the small size: {len(equal)}, of which {unsplit} were not split."
    if measured:
        needed = [row for row in measured if row.before > row.limit]
        cured = sum(row.met for row in needed)
        larger = [row.name for row in measured if row.larger]
        yield f"Of {len(needed)} that are over their limit, {cured} are cured; larger: {', '.join(larger) or 'none'}."
    timed = [row for row in rows if row.ratio]
    if timed:
        worst = max(timed, key=lambda row: row.ratio)
        mean = geometric_mean([row.ratio for row in timed])
        yield f"Time of {len(timed)}: geometric mean {mean:.2f}, worst {worst.ratio:.2f} ({worst.name})."
        by_hand = [row.hand_ratio for row in timed if row.hand_ratio]
        if by_hand:
            mean = geometric_mean(by_hand)
            yield f"Against by hand, {len(by_hand)}: geometric mean {mean:.2f}, worst {max(by_hand):.2f}."


if __name__ == "__main__":
    main()
