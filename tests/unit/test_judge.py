"""What the judge of a target says of a module."""

from __future__ import annotations

import pytest

from exla_opt.budget.measured import Measured
from exla_opt.cli.judge import judge_of
from exla_opt.memory.peak import Memory
from exla_opt.runtime.gpu_seconds import GpuTime
from exla_opt.runtime.target import Compiled


@pytest.mark.parametrize("seconds", [None, 0.25])
def test_the_judge_of_a_target_says_how_long_a_run_takes(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    found = Compiled(
        Memory(1, 2, 0, 4), "left out", None if seconds is None else GpuTime(seconds=seconds, at_least=True)
    )
    monkeypatch.setattr("exla_opt.runtime.judge.compiled_memory", lambda data, target: found)
    measure = judge_of("cuda:h200", "test").measure
    assert measure is not None
    assert measure(b"") == Measured(7, seconds, "left out")
