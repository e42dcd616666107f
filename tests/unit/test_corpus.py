"""StableHLO's own self-checking modules, where there is an archive of them, under a forced tiny threshold.

A fixed sample runs by default, all of them with EXLA_OPT_CORPUS=all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from exla_opt.runtime.compare import compare, default_tolerance
from exla_opt.runtime.compile import compile_program, run_program
from tests.corpus.check import OPTIONS, check
from tests.corpus.stablehlo import ARCHIVE, Checked, load, names
from tests.corpus.tables import rows_of
from tests.corpus.tally import Tally, tally

BATCHES = 100 if os.environ.get("EXLA_OPT_CORPUS") == "all" else 10

pytestmark = pytest.mark.skipif(
    not ARCHIVE.exists(), reason="no archive of StableHLO's test data: EXLA_OPT_TESTDATA=FILE"
)


def chosen() -> list[str]:
    return names() if os.environ.get("EXLA_OPT_CORPUS") == "all" else names()[::60]


def misses(module: Checked) -> list[str]:
    """Where the module as it came does not give what StableHLO expects: then it proves nothing of us."""
    results = run_program(compile_program(module.direct.text), module.direct.fills[0])
    # The expectations were computed elsewhere: a narrow float may be off by a rounding, as NaN may not.
    pairs = zip(module.expected, results, strict=True)
    found = [compare(expected, actual, default_tolerance(expected.dtype)).problem for expected, actual in pairs]
    return [f"{module.direct.name}: {problem}" for problem in found if problem]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_modules(batch: int, record_property: Callable[[str, object], None]) -> None:
    problems: list[str] = []
    total: Tally = Counter()
    moving = on_edge = 0
    batch_names = chosen()[batch::BATCHES]
    for name in batch_names:
        module = load(name)
        problems += misses(module)
        for export in (module.direct, module.within):
            verdict = check(export)
            problems += verdict.wrong
            moving += verdict.moving
            on_edge += verdict.on_edge > 0
            total += tally(export.text, OPTIONS)
    record_property("modules", 2 * len(batch_names))
    record_property("tally", rows_of(total))
    record_property("changed by a second run", moving)
    record_property("on an edge", on_edge)
    assert not problems
