"""Parts of the tests: the first runs every test function, and together they run every case."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

_TESTS = """
import pytest

@pytest.mark.parametrize("case", range(10))
def test_many(case): pass

@pytest.mark.parts_at_most(2)
@pytest.mark.parametrize("case", range(6))
def test_in_halves(case): pass

def test_one(): pass

def test_two(): pass

def test_three(): pass
"""


def cases(pytester: pytest.Pytester, part: str) -> set[str]:
    pytester.makepyfile(_TESTS)
    passed, skipped, failed = pytester.inline_run("-p", "tests.part", f"--part={part}").listoutcomes()
    assert not skipped and not failed
    return {report.nodeid.rpartition("::")[2] for report in passed}


def test_the_first_part_has_every_function_and_all_parts_have_every_case(pytester: pytest.Pytester) -> None:
    every = cases(pytester, "1/1")
    parts = [cases(pytester, f"{number}/3") for number in (1, 2, 3)]
    assert len(every) == 19 and set().union(*parts) == every
    singles = {"test_one", "test_two", "test_three"}
    assert {*singles, "test_many[0]", "test_in_halves[0]"} <= parts[0]
    assert all(any(case.startswith("test_many") for case in part) and len(part) <= 12 for part in parts)
    assert sorted(len(singles & part) for part in parts[1:]) == [1, 1]
    halves = {case for part in parts[:2] for case in part if "halves" in case}
    assert halves == {f"test_in_halves[{case}]" for case in range(6)}


@pytest.mark.parametrize("part", ["0/3", "4/3"])
def test_a_part_that_is_none_is_a_usage_error(pytester: pytest.Pytester, part: str) -> None:
    pytester.makepyfile(_TESTS)
    assert pytester.inline_run("-p", "tests.part", f"--part={part}").ret == pytest.ExitCode.USAGE_ERROR
