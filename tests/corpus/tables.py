"""A pytest plugin that ends a run with tables: how many modules, what became of their big tensors, what is left out.

pytest -p tests.corpus.tables tests/unit/test_exports.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from tests.corpus.tally import SILENT, SPLIT, Tally

_FEW = 25


def rows_of(tally: Tally) -> list[tuple[str, str, str, int]]:
    """The counts as plain values, which a test may hand to whoever gathers them."""
    return [(*key, count) for key, count in tally.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables of all tests that recorded `tally` and `modules`."""
    total: Tally = Counter()
    modules = moving = on_edge = 0
    reasons: Counter[str] = Counter()
    for kind in ("passed", "failed", "skipped"):
        for report in terminalreporter.getreports(kind):
            for name, value in getattr(report, "user_properties", ()):
                if name == "tally":
                    for op, outcome, stopped_by, count in value:
                        total[op, outcome, stopped_by] += count
                elif name == "modules":
                    modules += value
                elif name == "changed by a second run":
                    moving += value
                elif name == "on an edge":
                    on_edge += value
                elif name == "left out":
                    reasons[value] += 1
    terminalreporter.section(f"{modules} modules, {total.total()} tensors over the threshold")
    terminalreporter.write_line(f"{moving} of the modules are changed again by a second run.")
    terminalreporter.write_line(f"{on_edge} give the same only without XLA's algebraic simplification.\n")
    for line in (
        *by_op(total),
        "",
        *by_obstacle(total),
        "",
        *_table(("functions left out", ""), reasons.most_common(_FEW)),
    ):
        terminalreporter.write_line(line)


def by_op(tally: Tally) -> Iterator[str]:
    """A row for each producing op: tensors, how many are split, and how many stay by the reason's code."""
    ops: dict[str, Counter[str]] = {}
    for (op, outcome, _), count in tally.items():
        ops.setdefault(op, Counter())[outcome] += count
    rows = []
    for op, outcomes in sorted(ops.items(), key=lambda item: -item[1].total()):
        codes = ", ".join(f"{code} {count}" for code, count in outcomes.most_common() if code not in (SPLIT, SILENT))
        rows.append((op, outcomes.total(), outcomes[SPLIT], outcomes[SILENT], codes))
    return _table(("made by", "tensors", "split", "silent", "left alone"), rows)


def by_obstacle(tally: Tally) -> Iterator[str]:
    """A row for each reason and the op that stands in the way, the most frequent first."""
    found: Counter[tuple[str, str]] = Counter()
    for (op, outcome, stopped_by), count in tally.items():
        if outcome not in (SPLIT, SILENT):
            found[outcome, stopped_by or op] += count
    return _table(("reason", "op in the way", "tensors"), ((*key, count) for key, count in found.most_common(_FEW)))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
