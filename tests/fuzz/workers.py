"""Processes that run programs: XLA may abort, and must not take the others with it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.generate import Program
from tests.fuzz.run import Outcome

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a process said: outcomes, the stage at which it ended, and its last word on standard error."""

    outcomes: list[Outcome]
    stage: str
    last: str


def run_range(seed: int, indices: range, batch: int, plain: bool, devices: int = 1) -> list[Outcome]:
    """The outcomes of these programs, in order. Where a process dies the programs of its batch are run one by one."""
    outcomes: list[Outcome] = []
    while len(indices):
        reported = _run_process(seed, indices, batch, plain, devices)
        outcomes += reported.outcomes
        finished = {outcome.index for outcome in reported.outcomes}
        rest = [index for index in indices if index not in finished]
        if not rest:
            break
        if batch == 1:
            # XLA may abort on the original too: then the program shows nothing.
            status = "refused" if reported.stage == "original" else "failed"
            outcomes.append(Outcome(rest[0], status, f"the process died ({reported.stage}): {reported.last}"))
            indices = range(rest[0] + 1, indices.stop)
            continue
        stop = min(rest[0] + batch, indices.stop)
        outcomes += run_range(seed, range(rest[0], stop), 1, plain, devices)
        indices = range(stop, indices.stop)
    return sorted(outcomes, key=lambda outcome: outcome.index)


def _run_process(seed: int, indices: range, batch: int, plain: bool, devices: int) -> _Told:
    command = [sys.executable, "-m", "tests.fuzz", "--worker", f"--seed={seed}", f"--first={indices.start}"]
    command += [f"--count={len(indices)}", f"--batch={batch}", f"--devices={devices}"]
    command += ["--plain"] * plain
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    outcomes, stage = [], "starting"
    for line in process.stdout.splitlines():
        if not line.startswith("{"):
            continue
        reported = json.loads(line)
        if "stage" in reported:
            stage = reported["stage"]
        else:
            reported["changed"], reported["kinds"] = tuple(reported["changed"]), tuple(reported["kinds"])
            reported["sent"] = tuple(reported["sent"])
            outcomes.append(Outcome(**reported))
    if process.returncode and stage == "starting":
        raise RuntimeError(process.stderr[-2000:])
    return _Told(outcomes, stage, (process.stderr.splitlines() or [""])[-1][:300])


def failure_text(program: Program, problem: str, plain: bool) -> str:
    """The program as a file: what is wrong, how to repeat it, and how to rewrite it by the command line."""
    options = program.options
    flags = [f"--passes={','.join(program.passes)}", f"--size-threshold={options.size_threshold}"]
    flags += [] if options.split_size is None else [f"--split-size={options.split_size}"]
    flags += [] if options.reassociate else ["--no-reassociate"]
    flags += [f"--chain-cost={options.chain_cost}"]
    head = [f"// {line}" for line in problem.splitlines()]
    head += [
        f"// python -m tests.fuzz --seed={program.seed} --only={program.index}{' --plain' * plain}"
        + f" --devices={program.devices}" * (program.devices > 1),
        f"// exla-opt FILE {' '.join(flags)}",
    ]
    return "\n".join(head) + "\n" + program.text
