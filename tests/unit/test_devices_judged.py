"""What --pareto offers for modules of several devices is what --memory-limit writes, and a search skips what it would not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from exla_opt.budget.fit import fit
from exla_opt.budget.measured import Instead, Measured
from exla_opt.budget.pareto import pareto
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from exla_opt.sharding.joined import instead_of

ROOT = Path(__file__).parents[2]
ATTENTION = ROOT / "examples" / "attention.mlir"
ORIGINAL = 200_000_000
LIMIT = 40_000_000


class Compiler:
    """Plans programs as predicted, and refuses some of those that passes changed. asked: their peaks, in order."""

    def __init__(self, refused: set[int]):
        self.refused = refused
        self.asked: list[int] = []

    def __call__(self, data: bytes) -> Measured:
        peak = predict(parse_module("module", data, new_context()).module, Options().machine).peak
        self.asked.append(peak)
        return Measured(peak, instead=Instead(ORIGINAL, peak in self.refused, True))


def fitted(refused: set[int]) -> tuple[int, bool, Compiler]:
    module = parse_module("attention.mlir", ATTENTION.read_bytes(), new_context()).module
    compiler = Compiler(refused)
    found = fit(module, DEFAULT_PASSES, Options(memory_limit=LIMIT), LIMIT, compiler)
    return found.peak, found.fits, compiler


def test_a_search_takes_another_program_if_devices_would_send_more_by_the_first() -> None:
    first, fits, _ = fitted(set())
    assert fits and first <= LIMIT
    other, fits, compiler = fitted({first})
    assert first in compiler.asked
    assert fits and first != other <= LIMIT


def test_what_is_refused_is_not_offered() -> None:
    def offered(refused: set[int]) -> tuple[list[int], list[int]]:
        module = parse_module("attention.mlir", ATTENTION.read_bytes(), new_context()).module
        compiler = Compiler(refused)
        return [each.peak for each in pareto(module, DEFAULT_PASSES, Options(), compiler)], compiler.asked

    plain, asked = offered(set())
    assert len(plain) > 2 and plain[1] in asked
    assert plain[1] not in offered({plain[1]})[0]
    # The unsplit program of one device is no smaller than the module as it came, which is written instead.
    assert offered(set(asked))[0] == [ORIGINAL]


@pytest.mark.parametrize("name", ["many-devices", "many-devices-limit", "many-devices-kept"])
def test_each_limit_that_is_offered_is_reached(name: str, tmp_path: Path) -> None:
    path = ROOT / "tests" / "lit" / "exla-opt" / f"{name}.mlir"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "exla_opt", str(path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    table = run("--pareto")
    assert table.returncode == 0, table.stderr
    limits = re.findall(r"^([\d.]+[KMG]?B) ", table.stdout, re.MULTILINE)
    assert limits
    for limit in (limits[0], limits[-1]):
        done = run(f"--memory-limit={limit}", "--strict", "-o", str(tmp_path / "out.mlir"))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("sent", "before", "worse"), [(5.0, 5.0, False), (6.0, 5.0, True), (6.0, None, False), (None, 5.0, False)]
)
def test_traffic_that_a_compiler_does_not_report_is_no_reason_to_keep_the_original(
    sent: float | None, before: float | None, worse: bool
) -> None:
    """A TPU's compiler says nothing of what a program would send that does not fit; the ops alone count then."""
    assert instead_of((sent, 10), (before, 100)).of_changed == worse
    assert instead_of((sent, 10), (before, 100), more_is_sent=True).of_changed
