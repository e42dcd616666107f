"""The functions of the bench from the wild: what is split stays equal, and so is what people write by hand."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from benchmarks.wild.entry import Entry, export
from benchmarks.wild.measure import equality
from benchmarks.wild.programs import ENTRIES
from exla_opt.ir.context import new_context
from exla_opt.runtime.check import compare_modules


def test_names_differ() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_split_is_equal(entry: Entry) -> None:
    assert entry.link.startswith("https://github.com/")
    assert equality(entry) in ("equal", "unsplit")


@pytest.mark.parametrize("entry", [one for one in ENTRIES if one.by_hand], ids=lambda entry: entry.name)
def test_by_hand_is_equal(entry: Entry) -> None:
    assert entry.by_hand is not None
    with new_context() as context:
        texts = (export(function, entry.small, entry.gradient) for function in (entry.function, entry.by_hand))
        original, by_hand = (ir.Module.parse(text, context) for text in texts)
        for comparison in compare_modules(original, by_hand):
            assert comparison.passed, comparison.problem
