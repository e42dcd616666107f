"""The functions of the bench from the wild: what is split stays equal, and so is what people write by hand."""

from __future__ import annotations

import pytest

from benchmarks.wild.entry import Entry
from benchmarks.wild.measure import equality
from benchmarks.wild.programs import ENTRIES


def test_names_differ() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_split_is_equal(entry: Entry) -> None:
    assert entry.link.startswith("https://github.com/")
    assert equality(entry) in ("equal", "unsplit")
