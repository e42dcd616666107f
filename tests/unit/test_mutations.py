"""A fixed part of `make mutations`: damaged modules are refused with a sentence or rewritten."""

from tests.mutations import make_case, read_samples, run_cases, run_command

SEED = 20


def test_damaged_modules_are_refused_or_rewritten() -> None:
    tally = run_cases(read_samples([]), SEED, range(300))
    assert tally.faults == []
    assert tally.outcomes["refused"] > 100
    assert tally.outcomes["rewritten"] > 10


def test_damaged_modules_on_the_command_line() -> None:
    samples = read_samples([])
    outcomes = {run_command(*make_case(samples, SEED, number)) for number in range(6)}
    assert outcomes <= {"refused", "rewritten"}


def test_a_case_is_the_same_every_time() -> None:
    samples = [b"func.func public @main() {\n  return\n}\n", b"module {}\n"]
    assert [make_case(samples, 3, number) for number in range(40)] == [make_case(samples, 3, n) for n in range(40)]
    assert make_case(samples, 3, 0) != make_case(samples, 4, 0)
