"""Which sizes the search leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from jaxlib.mlir import ir

from exla_opt.budget.attempt import Attempt, Split
from exla_opt.budget.choose import is_clearly_faster
from exla_opt.budget.fit import unsplit_options
from exla_opt.budget.hopeless import is_before_larger
from exla_opt.budget.needless import is_between, is_needless_in_large, is_past_the_fastest, is_too_large
from exla_opt.budget.search import Search
from exla_opt.budget.ways import is_coarse, quick_first, step_by_step, ways
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import Memory
from exla_opt.options import Options
from exla_opt.pipeline import Outcome
from exla_opt.remarks import Kind, Remark

MB = 1_000_000
RECOMPUTED = Remark(Kind.PASSED, "EX014", "recompute", "1xf32", 4, "x.py:1:1", "is computed again")
SIZES = ways(Memory(0, 0, 0, 1024 * MB), 512 * MB, Options(machine=CPU))
CACHE = SIZES[0].slice_bytes


def attempted(way: Options, seconds: float, peak: int) -> Attempt:
    memory = Memory(0, 0, 0, peak)
    split = Split(peak, peak, ())
    return Attempt(cast(ir.Module, None), Outcome((), ()), way, memory, 0, split, split, seconds)


class Tried:
    """A search with given outcomes."""

    def __init__(self, limit: int):
        self.limit, self.has_calls = limit, False
        self.attempts: list[Attempt] = []

    def seems_to_fit(self, found: Attempt) -> bool:
        return found.predicted.peak <= self.limit

    def expected_peak(self, found: Attempt) -> int:
        return found.predicted.peak if found.measured is None else found.measured


def searched(seconds: Sequence[float], limit: int) -> list[float]:
    """The sizes tried, as parts of the cache. seconds: of the cache's size, half of it and so on; 1 for all others."""
    search = Tried(limit)
    times = {CACHE >> place: time for place, time in enumerate(seconds)}
    for way in step_by_step(SIZES):
        if is_coarse(way) or is_past_the_fastest(cast(Search, search), way, CACHE):
            continue
        search.attempts.append(attempted(way, times.get(way.slice_bytes, 1.0), way.slice_bytes))
    return [found.options.slice_bytes / CACHE for found in search.attempts]


def test_smaller_slices_are_tried_as_long_as_they_get_faster() -> None:
    assert min(searched([1.0, 1.2, 1.5], 2 * CACHE)) == 1 / 2
    assert min(searched([1.0, 1.01, 1.02, 1.5], 2 * CACHE)) == 1 / 4
    assert min(searched([1.0, 0.8, 0.6, 0.8, 1.0], 2 * CACHE)) == 1 / 8
    assert min(searched([1.0, 0.99, 0.9, 0.8, 0.7, 0.6], 2 * CACHE)) == 1 / 64


def test_where_smaller_slices_end_depends_on_no_limit_above_them() -> None:
    times = [1.0, 0.96, 0.9, 0.8, 0.72, 0.9, 1.0]
    assert {min(searched(times, int(part * CACHE))) for part in (1 / 4, 1 / 2, 1.0, 8.0)} == {
        min(searched(times, CACHE))
    }


def test_smaller_slices_are_not_tried_where_larger_ones_are_faster() -> None:
    search = Tried(1000 * MB)
    for way in step_by_step(SIZES):
        if not is_coarse(way) and not is_past_the_fastest(cast(Search, search), way, CACHE):
            search.attempts.append(attempted(way, CACHE / way.slice_bytes, way.slice_bytes))
    assert min(found.options.slice_bytes for found in search.attempts) == CACHE


def test_nothing_is_left_out_before_something_fits() -> None:
    tried = searched([1.0] * 7, 0)
    assert sorted(tried) == sorted(way.slice_bytes / CACHE for way in SIZES if not is_coarse(way))


@pytest.mark.parametrize(("slower", "most"), [(1.0, 16), (1.5, 4)])
def test_larger_slices_end_where_they_are_slower(slower: float, most: int) -> None:
    search = Tried(1000 * MB)
    for way in step_by_step(SIZES):
        if not is_coarse(way) and not is_past_the_fastest(cast(Search, search), way, CACHE):
            search.attempts.append(attempted(way, slower if way.slice_bytes > CACHE else 1.0, way.slice_bytes))
    assert max(found.options.slice_bytes for found in search.attempts) == most * CACHE


def test_sizes_below_the_first_come_last_and_fall() -> None:
    order = step_by_step(SIZES)
    assert sorted(map(repr, order)) == sorted(map(repr, SIZES))
    smaller = [way for way in order if way.slice_bytes < CACHE]
    assert smaller == sorted(smaller, key=lambda way: -way.slice_bytes)
    assert order == [way for way in SIZES if way not in smaller] + smaller


def test_the_smallest_slices_come_before_larger_ones_until_those_are_tried() -> None:
    small = [way for way in step_by_step(SIZES) if way.slice_bytes < CACHE]
    search = Tried(100 * MB)
    ways_before = [is_before_larger(cast(Search, search), way, small, CACHE) for way in small]
    assert ways_before == [False, *(True for _ in small[1:])]
    search.attempts = [attempted(way, 1.0, 5 * MB) for way in small[:-1]]
    assert not is_before_larger(cast(Search, search), small[-1], small, CACHE)


def test_what_is_planned_soonest_comes_first() -> None:
    order = quick_first(SIZES, 10 * CACHE)
    assert sorted(map(repr, order)) == sorted(map(repr, SIZES))
    kinds = [0 if is_coarse(way) else 1 if way.slice_bytes >= CACHE else 2 for way in order]
    assert kinds == sorted(kinds)


def test_thresholds_between_two_of_equal_figures_are_left_out() -> None:
    coarse = sorted(filter(is_coarse, SIZES), key=lambda way: way.size_threshold)
    largest, between = coarse[-1], coarse[:-1]
    assert between
    search = Tried(1000 * MB)
    unsplit = attempted(unsplit_options(SIZES[0]), 1.0, 1000 * MB)
    search.attempts = [unsplit, attempted(SIZES[0], 1.0, 5 * MB), attempted(largest, 1.0, 5 * MB)]
    assert all(is_between(cast(Search, search), way) for way in between)
    assert not is_between(cast(Search, search), SIZES[1])
    search.attempts[2] = attempted(largest, 1.01, int(5.05 * MB))
    assert all(is_between(cast(Search, search), way) for way in between)
    search.attempts[2] = attempted(largest, 1.2, 6 * MB)
    assert not any(is_between(cast(Search, search), way) for way in between)


def test_thresholds_below_a_fast_one_that_fits_are_left_out() -> None:
    coarse = sorted(filter(is_coarse, SIZES), key=lambda way: way.size_threshold)
    largest, between = coarse[-1], coarse[:-1]
    search = Tried(100 * MB)
    unsplit = attempted(unsplit_options(SIZES[0]), 1.0, 1000 * MB)
    for seconds, peak, needless in ((1.0, 90, True), (1.2, 90, False), (1.0, 110, False)):
        search.attempts = [unsplit, attempted(SIZES[0], 1.0, 5 * MB), attempted(largest, seconds, peak * MB)]
        assert all(is_between(cast(Search, search), way) == needless for way in between)


@pytest.mark.parametrize(
    ("times", "peak", "needless"),
    [
        ((1.0, 1.05), 5, True),
        ((1.0, 1.01), 5, False),
        ((1.2, 1.0), 5, False),
        ((1.0, 1.2), 50, False),
        ((1.0,), 5, False),
    ],
)
def test_small_thresholds_of_a_large_module_end_where_they_get_no_faster(
    times: tuple[float, ...], peak: int, needless: bool
) -> None:
    """times: by falling threshold. peak: of the smallest one."""
    coarse = sorted(filter(is_coarse, SIZES), key=lambda way: -way.size_threshold)
    search = Tried(10 * MB)
    search.attempts = [attempted(way, time, peak * MB) for way, time in zip(coarse, times, strict=False)]
    assert is_needless_in_large(cast(Search, search), SIZES[0], CACHE) == needless


@pytest.mark.parametrize(
    ("peak", "seconds", "is_coarse_one", "needless"),
    [(5, 1.4, False, True), (5, 1.4, True, True), (50, 1.4, False, False), (5, 1.9, True, False)],
)
def test_small_slices_of_a_large_module_are_left_out_where_larger_ones_recompute_and_are_not_much_slower(
    peak: int, seconds: float, is_coarse_one: bool, needless: bool
) -> None:
    """peak, seconds: of the larger ones; the original takes 1 s."""
    larger = next(way for way in SIZES if is_coarse(way) == is_coarse_one and way.slice_bytes >= CACHE)
    search = Tried(10 * MB)
    recomputed = replace(attempted(larger, seconds, peak * MB), outcome=Outcome((RECOMPUTED,), ()))
    search.attempts = [attempted(unsplit_options(SIZES[0]), 1.0, 1000 * MB), recomputed]
    smaller = [way for way in SIZES if way.slice_bytes < CACHE]
    assert smaller
    for way in smaller:
        assert is_needless_in_large(cast(Search, search), way, CACHE) == needless


def test_larger_slices_are_left_out_where_smaller_ones_are_far_above_the_limit() -> None:
    coarse, larger = next(filter(is_coarse, SIZES)), replace(SIZES[0], size_threshold=8 * CACHE, split_size=8 * CACHE)
    search = Tried(10 * MB)
    held = replace(attempted(SIZES[0], 1.0, 20 * MB), split=Split(20 * MB, 5 * MB, ()))
    search.attempts = [held]
    assert not is_too_large(cast(Search, search), larger)  # nothing fits yet
    search.attempts.append(attempted(coarse, 1.0, 5 * MB))
    assert is_too_large(cast(Search, search), larger)
    assert not is_too_large(cast(Search, search), coarse)
    search.attempts[0].measured = 12 * MB
    assert not is_too_large(cast(Search, search), larger)
    search.attempts[0] = replace(attempted(SIZES[0], 1.0, 20 * MB), split=Split(20 * MB, 15 * MB, ()))
    assert not is_too_large(cast(Search, search), larger)  # what stays unsplit holds the memory


@pytest.mark.parametrize(("seconds", "peak", "pays"), [(1.0, 10, True), (1.0, 11, False), (1.9, 9, False)])
def test_a_program_that_fits_is_split_only_for_clearly_less_time_and_no_more_memory(
    seconds: float, peak: int, pays: bool
) -> None:
    unsplit = attempted(unsplit_options(SIZES[0]), 2.0, 10 * MB)
    assert is_clearly_faster(attempted(SIZES[0], seconds, peak * MB), unsplit) == pays
