"""Random programs, rewritten and run: python -m tests.fuzz --count=1000 --seed=0 --jobs=2."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from exla_opt.ops.sent import MORE
from tests.fuzz.generate import generate
from tests.fuzz.partitioned import use_this_process
from tests.fuzz.run import STRICT_FLAGS, Outcome, run_batch
from tests.fuzz.workers import failure_text, run_range

_NUMBER = re.compile(r"\d+")
_FOLDER = Path("build/fuzz")
_SECONDS_A_BATCH = 300


@click.command()
@click.option("--count", default=1000, help="How many programs.")
@click.option("--seed", default=0, help="Of the programs; each is made of the seed and its number alone.")
@click.option("--first", default=0, help="The number of the first one.")
@click.option("--only", type=int, help="Run one program and print it, with its settings.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.")
@click.option("--batch", default=12, help="Programs to a module.")
@click.option("--plain", is_flag=True, help="XLA as users have it: slower, and maps may differ by a rounding.")
@click.option("--devices", type=click.Choice(["1", "8"]), default="1", help="Programs for so many.")
@click.option("--worker", is_flag=True, hidden=True)
def main(
    count: int, seed: int, first: int, only: int | None, jobs: int, batch: int, plain: bool, devices: str, worker: bool
) -> None:
    """Generate programs around the patterns of each pass, rewrite them under tiny thresholds, run both, compare.

    Every program that fails is written to build/fuzz, with the command that repeats it. The exit status is 1 then.
    """
    if not plain:
        os.environ["XLA_FLAGS"] = STRICT_FLAGS
    if worker:
        _work(seed, range(first, first + count), batch, int(devices))
        return
    if only is not None:
        print(failure_text(generate(seed, only, int(devices)), "", plain))
        [outcome] = run_range(seed, range(only, only + 1), 1, plain, int(devices))
        print(f"// {outcome.status}: {outcome.problem}, changed by {', '.join(outcome.changed) or 'nothing'}")
        sys.exit(outcome.status == "failed")
    sys.exit(_run_all(seed, range(first, first + count), jobs, batch, plain, int(devices)))


def _work(seed: int, indices: range, batch: int, devices: int) -> None:
    """Print one line for each stage and each outcome, for the process that started this one.

    Shardy runs in this process too, several times as fast, but for single programs: those that it may crash on.
    """
    if batch > 1:
        use_this_process()
    for start in range(indices.start, indices.stop, batch):
        faulthandler.dump_traceback_later(_SECONDS_A_BATCH, exit=True)

        def stage(name: str, start: int = start) -> None:
            print(json.dumps({"stage": name, "start": start}), flush=True)

        for outcome in run_batch(seed, range(start, min(start + batch, indices.stop)), stage, devices):
            print(json.dumps(dataclasses.asdict(outcome)), flush=True)


def _run_all(seed: int, indices: range, jobs: int, batch: int, plain: bool, devices: int) -> int:
    begin = time.perf_counter()
    size = max(batch, min(20 * batch, -(-len(indices) // jobs)))
    pieces = [range(low, min(low + size, indices.stop)) for low in range(indices.start, indices.stop, size)]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(lambda piece: run_range(seed, piece, batch, plain, devices), pieces):
            outcomes += done
            for outcome in done:
                if outcome.status == "failed":
                    _write(seed, outcome, plain, devices)
    _print(outcomes, time.perf_counter() - begin)
    return int(any(outcome.status == "failed" for outcome in outcomes))


def _write(seed: int, outcome: Outcome, plain: bool, devices: int) -> None:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = _FOLDER / f"{seed}-{outcome.index}{f'-on-{devices}' * (devices > 1)}.mlir"
    path.write_text(failure_text(generate(seed, outcome.index, devices), outcome.problem, plain))
    print(f"FAILED {path}: {outcome.problem[:200]}", flush=True)


def _print(outcomes: list[Outcome], seconds: float) -> None:
    status = Counter(outcome.status for outcome in outcomes)
    changed = Counter(name for outcome in outcomes for name in outcome.changed)
    kinds = Counter(name for outcome in outcomes for name in outcome.kinds)
    results, exact, measured = (sum(getattr(o, name) for o in outcomes) for name in ("results", "exact", "measured"))
    print(f"{len(outcomes)} programs in {seconds:.0f} s ({len(outcomes) / seconds:.1f} a second): ", end="")
    print(f"{status['ok']} equal, {status['failed']} failed, {status['refused']} not taken by XLA")
    reasons = Counter(_NUMBER.sub("N", outcome.problem) for outcome in outcomes if outcome.status == "as it came")
    for reason, count in reasons.most_common():
        print(f"  {count} as they came: {reason}")
    if sent := [outcome.sent for outcome in outcomes if outcome.sent]:
        more = sum(after > MORE * before for before, after in sent)
        print(
            f"without a program of one device: {status['as it came']}; more would be sent: {more}; "
            f"right where XLA's original is wrong: {status['corrected']}"
        )
    print("changed by: " + ", ".join(f"{name} {count}" for name, count in changed.most_common()))
    print(f"results: {results}, of which {exact} to the bit, {measured} by their error against float64")
    print("with: " + ", ".join(f"{name} {count}" for name, count in kinds.most_common()))


if __name__ == "__main__":
    main()
