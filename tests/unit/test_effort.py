"""A search whose attempts take long ends early, at the same place on every machine, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from exla_opt.budget import search as search_of_budget
from exla_opt.budget.fit import Fit, fit
from exla_opt.budget.pareto import pareto
from exla_opt.ir.context import new_context
from exla_opt.ir.read import read_module
from exla_opt.memory.effort import simulated
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from exla_opt.report.text import fit_lines

SAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"
ROOMY, MISSED = 12_000_000, 1_000_000


def found_within(limit: int) -> tuple[Fit, int, int]:
    """What was found, the number of attempts, and the number of ops that they simulated."""
    attempts: list[int] = []
    before = simulated()
    found = fit(
        read_module(str(SAMPLE), new_context()).module,
        DEFAULT_PASSES,
        Options(),
        limit,
        tried=lambda sizes, peak: attempts.append(peak),
    )
    return found, len(attempts), simulated() - before


def notes(found: Fit, limit: int) -> str:
    return "\n".join(fit_lines("name", found, limit, "a CPU"))


@pytest.mark.parametrize("limit", [ROOMY, MISSED])
def test_a_search_ends_early_once_its_attempts_take_too_much_effort(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, attempts, effort = found_within(limit)
    assert not found.ended_early and "ended early" not in notes(found, limit)
    assert found_within(limit)[1:] == (attempts, effort), "the same effort each time"

    monkeypatch.setattr(search_of_budget, "_MOST_SIMULATED", effort // 2)
    monkeypatch.setattr(search_of_budget, "_MOST_IN_VAIN", effort // 2)
    early, fewer, less = found_within(limit)
    assert early.ended_early and 1 < fewer < attempts and less < effort
    assert "the search ended early" in notes(early, limit)
    assert ("may be faster" if early.fits else "may need less") in notes(early, limit)


def test_a_search_goes_on_longer_while_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    _, attempts, _ = found_within(MISSED)
    monkeypatch.setattr(search_of_budget, "_MOST_SIMULATED", 0)
    found, tried, _ = found_within(MISSED)
    assert not found.fits and tried == attempts
    found, tried, _ = found_within(ROOMY)
    assert found.fits and found.ended_early


def test_the_front_ends_early_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = read_module(str(SAMPLE), new_context()).module
    choices = pareto(module, DEFAULT_PASSES, Options())
    monkeypatch.setattr(search_of_budget, "_MOST_IN_VAIN", 0)
    module = read_module(str(SAMPLE), new_context()).module
    assert len(pareto(module, DEFAULT_PASSES, Options())) < len(choices)
