"""Damaged modules: every one is either refused with a sentence or rewritten into a module that can be read again.

    python -m tests.mutations --count 10000 --seed 1 --modules DIRECTORY

Cases are numbered; a case depends on the seed and its number alone. They run in batches, each in a child process, so
that a crash of MLIR ends a batch and not the run; every hundredth also runs through the command line.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline

_LIT = Path(__file__).parent / "lit"
_BATCH = 50
_SECONDS = 60
_READING_SECONDS = 10
_BYTES = 8 * 2**30
_THRESHOLDS = (64, 1000, 64_000, 10**9)
_NUMBERS = (b"0", b"1", b"-1", b"7", b"65536", b"4294967296", b"9223372036854775807", b"99999999999999999999")
_JUNK = (b"\0", b"\xff", b"\xc3", b"\r\n", *b'" { } ( ) < > % // dense tensor< ?'.split())
_DIAGNOSTIC = re.compile(r"^[^\n]+?(:\d+(:\d+)?)?: error: [^\n]+", re.MULTILINE)

Change = Callable[[random.Random, bytes, bytes], bytes]


@dataclass(slots=True)
class Tally:
    """What became of the cases: how many by outcome, and those that should not be."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, number: int, outcome: str) -> None:
        """Count one case. Outcomes in capitals are faults."""
        kind, _, detail = outcome.partition("\t")
        self.outcomes[kind] += 1
        if kind.isupper():
            self.faults.append(f"case {number}: {kind} {detail}")


def _lines(change: Callable[[random.Random, list[bytes], int], None]) -> Change:
    def changed(rng: random.Random, data: bytes, other: bytes) -> bytes:
        rows = data.split(b"\n")
        change(rng, rows, rng.randrange(len(rows)))
        return b"\n".join(rows)

    return changed


def _delete(rng: random.Random, rows: list[bytes], at: int) -> None:
    del rows[at : at + rng.choice((1, 1, 1, 3))]


def _double(rng: random.Random, rows: list[bytes], at: int) -> None:
    rows.insert(rng.randrange(len(rows)), rows[at])


def _swap(rng: random.Random, rows: list[bytes], at: int) -> None:
    to = rng.randrange(len(rows))
    rows[at], rows[to] = rows[to], rows[at]


def _flip(rng: random.Random, data: bytes, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _remove(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 10, 100)) :]


def _insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(_JUNK) * rng.choice((1, 1, 1, 50)) + data[at:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def _number(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return _replaced(rng, data, rb"\d+", rng.choice(_NUMBERS))


def _name(rng: random.Random, data: bytes, other: bytes) -> bytes:
    names = re.findall(rb"%[\w#]+|@\w+|stablehlo\.\w+|chlo\.\w+", data) or [b"%0"]
    return _replaced(rng, data, rb"%[\w#]+|@\w+|stablehlo\.\w+|chlo\.\w+", rng.choice(names))


def _type(rng: random.Random, data: bytes, other: bytes) -> bytes:
    types = re.findall(rb"tensor<[^<>]*>", data + other) or [b"tensor<f32>"]
    return _replaced(rng, data, rb"tensor<[^<>]*>", rng.choice(types))


def _replaced(rng: random.Random, data: bytes, pattern: bytes, by: bytes) -> bytes:
    found = list(re.finditer(pattern, data))
    if not found:
        return data
    one = rng.choice(found)
    return data[: one.start()] + by + data[one.end() :]


_ANYWHERE: tuple[Change, ...] = (_flip, _cut, _remove, _insert, _splice)
_IN_TEXT: tuple[Change, ...] = (*map(_lines, (_delete, _double, _swap)), _number, _number, _name, _name, _type, _type)


def read_samples(folders: Sequence[Path]) -> list[bytes]:
    """Whole modules to damage: the inputs of the lit tests and the small modules in `folders`, each in three forms."""
    paths = [*sorted(_LIT.rglob("*.mlir")), *(path for one in folders for path in sorted(one.glob("*_small_*.mlir")))]
    samples: list[bytes] = []
    for path in paths:
        text = path.read_bytes()
        try:
            module = parse_module(path.name, text, new_context()).module
        except InputError:
            samples.append(text)
            continue
        code = io.BytesIO()
        module.operation.write_bytecode(code)
        samples += [text, text, code.getvalue(), serialise(module, "portable")]
    return samples


def make_case(samples: Sequence[bytes], seed: int, number: int) -> tuple[bytes, int]:
    """The damaged module of one number, and the threshold in bytes with which it is rewritten."""
    rng = random.Random(f"{seed} {number}")
    data = rng.choice(samples)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        changes = _ANYWHERE if data.startswith(b"ML\xefR") else _ANYWHERE + _IN_TEXT + _IN_TEXT
        if data:
            data = rng.choice(changes)(rng, data, rng.choice(samples))
    return data, rng.choice(_THRESHOLDS)


def outcome_of(data: bytes, threshold: int) -> str:
    """What becomes of a module: `refused`, `rewritten`, or a fault in capitals and, behind a tab, what it is."""
    try:
        with new_context() as context:
            signal.setitimer(signal.ITIMER_VIRTUAL, _READING_SECONDS)  # some damaged bytecode has no end to MLIR
            source = parse_module("case.mlir", data, context)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            run_pipeline(source.module, DEFAULT_PASSES, Options(threshold))
            parse_module("out.mlir", serialise(source.module, "text"), new_context())
    except InputError as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        error.locate("case.mlir", data)
        said = str(error)
        if error.file == "out.mlir":
            return f"UNREADABLE\t{said[:300]}"
        return "refused" if _DIAGNOSTIC.match(said) else f"SPEECHLESS\t{said[:300]}"
    except Exception as error:
        return f"RAISED\t{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return "rewritten"


def run_cases(samples: Sequence[bytes], seed: int, numbers: Sequence[int]) -> Tally:
    """Run the cases of these numbers, each batch in a child process."""
    tally = Tally()
    at = 0
    while at < len(numbers):
        batch = numbers[at : at + _BATCH]
        outcomes = _run_batch(samples, seed, batch)
        for number, outcome in zip(batch, outcomes, strict=False):
            tally.add(number, outcome)
        at += len(outcomes)
    return tally


def _run_batch(samples: Sequence[bytes], seed: int, numbers: Sequence[int]) -> list[str]:
    """The outcomes of the first cases: of all, or up to and with the one that ended the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _quieten()
        for number in numbers:
            data, threshold = make_case(samples, seed, number)
            os.write(writing, f"{outcome_of(data, threshold)}\n".encode())
        os._exit(0)
    os.close(writing)
    said = b""
    hung = False
    while select.select([reading], [], [], _SECONDS)[0]:
        more = os.read(reading, 65536)
        said += more
        if not more:
            break
    else:
        hung = True
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    outcomes = said.decode().splitlines()
    if hung:
        return [*outcomes, "HUNG\t"]
    if len(outcomes) < len(numbers):
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else str(status)
        outcomes.append(f"crashed in MLIR\t{name}")
    return outcomes


def _quieten() -> None:
    """In a child: what C++ prints goes nowhere, and there is an end to memory."""
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def run_command(data: bytes, threshold: int) -> str:
    """What becomes of a module on the command line, like `outcome_of`; a crash of MLIR is `refused` there."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "case.mlir"), Path(folder, "out.mlir")
        source.write_bytes(data)
        result.write_bytes(b"old")
        command = [sys.executable, "-m", "exla_opt", str(source), f"--size-threshold={threshold}", "-o", str(result)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return "HUNG\t"
        left = sorted(path.name for path in Path(folder).iterdir())
        if "Traceback" in done.stderr or left != ["case.mlir", "out.mlir"]:
            return f"MESS\t{left} {done.stderr[-300:]!r}"
        errors = len(_DIAGNOSTIC.findall(done.stderr))
        if done.returncode == 1 and errors == 1 and result.read_bytes() == b"old":
            return "refused"
        if done.returncode == 0 and errors == 0 and result.read_bytes() != b"old":
            return "rewritten"
        return f"WRONG\texit status {done.returncode}, {errors} errors: {done.stderr[-300:]!r}"


def main() -> None:
    """Run the cases, print the counts, and exit with 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--modules", type=Path, action="append", default=[], help="more modules to damage")
    arguments = parser.parse_args()
    start = time.perf_counter()
    samples = read_samples(arguments.modules)
    numbers = range(arguments.first, arguments.first + arguments.count)
    tally = run_cases(samples, arguments.seed, numbers)
    seconds = time.perf_counter() - start
    print(f"{len(numbers):,} cases of {len(samples):,} samples in {seconds:.0f} s: {_counts(tally)}")
    print("\n".join(tally.faults), flush=True)
    commands = Tally()
    for number in numbers[::100]:
        commands.add(number, run_command(*make_case(samples, arguments.seed, number)))
    print(f"{len(numbers[::100]):,} of them on the command line: {_counts(commands)}")
    print("\n".join(commands.faults))
    sys.exit(bool(tally.faults + commands.faults))


def _counts(tally: Tally) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(tally.outcomes.items()))


if __name__ == "__main__":
    main()
