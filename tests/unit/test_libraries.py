"""Layers, losses and optimisers of published JAX libraries as test programs, where they are installed.

They run with EXLA_OPT_CORPUS=all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.corpus.check import OPTIONS, check
from tests.corpus.exports import forms
from tests.corpus.libraries import LIBRARIES
from tests.corpus.tables import rows_of
from tests.corpus.tally import Tally, tally

pytestmark = pytest.mark.skipif(os.environ.get("EXLA_OPT_CORPUS") != "all", reason="runs with EXLA_OPT_CORPUS=all")


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.filterwarnings("ignore")  # what the libraries say of each other
def test_library(name: str, record_property: Callable[[str, object], None]) -> None:
    pytest.importorskip(name.partition(".")[0], reason=f"pip install {name.partition('.')[0]}")
    problems: list[str] = []
    total: Tally = Counter()
    modules = moving = on_edge = 0
    for export in forms(name, LIBRARIES[name]()):
        verdict = check(export)
        modules += 1
        problems += verdict.wrong
        moving += verdict.moving
        on_edge += verdict.on_edge > 0
        total += tally(export.text, OPTIONS)
    record_property("modules", modules)
    record_property("tally", rows_of(total))
    record_property("changed by a second run", moving)
    record_property("on an edge", on_edge)
    assert not problems
