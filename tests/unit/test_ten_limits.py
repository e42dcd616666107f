"""A larger limit gives no slower program, a smaller one no larger peak: ten limits on programs of the zoo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.ten_limits import answers, contradictions
from benchmarks.zoo.__main__ import export
from benchmarks.zoo.arrays import FIELD
from tests.shared_searches import shared_searches

PROGRAMS = FIELD.programs


@pytest.fixture(autouse=True, scope="module")
def shared() -> Iterator[None]:
    with shared_searches():
        yield


@pytest.mark.parametrize("name", ["sort_rows", "city_block_distances", "cosine_distances"])
def test_ten_limits_do_not_contradict_each_other(name: str) -> None:
    limits, found, _ = answers(name, export(PROGRAMS[name], "cpu"))
    assert found[-1].fits, "the last limit leaves room for all that there was"
    assert contradictions(limits, found) == ""


def test_a_contradiction_is_named() -> None:
    limits, found, _ = answers("sort_rows", export(PROGRAMS["sort_rows"], "cpu"))
    slow = replace(found[-1], seconds=2 * found[-2].seconds)
    assert "2.00 times as slow" in contradictions(limits, [*found[:-1], slow])
    assert "not met, a smaller one is" in contradictions(limits, [*found[:-1], replace(found[-1], fits=False)])
    large = replace(found[0], peak=limits[-1], smallest=None, fits=False)
    assert "for a smaller one" in contradictions(limits, [large, *found[1:]])
    assert "bytes fit" in contradictions(limits, [replace(found[0], peak=limits[0] + 1), *found[1:]])
