"""A fixed part of `make mutations`: damaged modules are refused with a sentence or rewritten."""

import re
import subprocess
import sys
from pathlib import Path

from tests.mutations import make_case, read_samples, run_command

SEED = 20
ROOT = Path(__file__).parents[2]


def test_damaged_modules_are_refused_or_rewritten() -> None:
    # In a process of its own: it forks, which one in which jax has started its threads should not.
    command = [sys.executable, "-m", "tests.mutations", "--count=300", f"--seed={SEED}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {
        outcome: int(count) for count, outcome in re.findall(r"(\d+) (refused|rewritten)", done.stdout.splitlines()[0])
    }
    assert counts["refused"] > 100
    assert counts["rewritten"] > 10


def test_damaged_modules_on_the_command_line() -> None:
    samples = read_samples([])
    outcomes = {run_command(*make_case(samples, SEED, number)) for number in range(6)}
    assert outcomes <= {"refused", "rewritten"}


def test_a_case_is_the_same_every_time() -> None:
    samples = [b"func.func public @main() {\n  return\n}\n", b"module {}\n"]
    assert [make_case(samples, 3, number) for number in range(40)] == [make_case(samples, 3, n) for n in range(40)]
    assert make_case(samples, 3, 0) != make_case(samples, 4, 0)


def test_large_inputs() -> None:
    command = [sys.executable, "-m", "tests.large_inputs", "--ops=5000", "--bytes=1000000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") == 6  # the line below the heading, and five cases
