"""The order in which sizes are tried for a limit, and the program that is taken, with given figures of each size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import cast

import pytest
from jaxlib.mlir import ir

from exla_opt.budget import order
from exla_opt.budget.attempt import RECOMPUTE, Attempt, Split
from exla_opt.budget.choose import fastest_that_fits
from exla_opt.budget.fit import unsplit_options
from exla_opt.budget.measured import Measured
from exla_opt.budget.order import try_ways
from exla_opt.budget.search import MOST_COMPILES, Search
from exla_opt.budget.ways import is_coarse, ways
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import Memory
from exla_opt.options import Options
from exla_opt.pipeline import Outcome
from exla_opt.remarks import Kind, Remark

MB = 1_000_000
TEMP = 8192 * MB
SMALL, LARGE = 100, 300  # ops
CACHE = 4 * MB
# Of an attempt: the peak, the seconds, and whether it recomputes.
Figures = tuple[int, float, bool]
Searched = Callable[..., tuple["Given", Attempt | None]]


def memory_of(peak: int) -> Memory:
    return Memory(0, 0, 0, peak)


class Given(Search):
    """A search in which each size has given figures. The unsplit program takes a second.

    largest: the bytes of the largest tensor.
    """

    largest = TEMP // 2

    def __init__(self, limit: int, figures: Callable[[Options], Figures], *, has_calls: bool):
        self.limit, self.figures, self.has_calls = limit, figures, has_calls
        self.measure, self.refusal = None, ""
        self.module = cast(ir.Module, None)
        self.attempts: list[Attempt] = []
        self.known: dict[bytes, Measured] = {}
        self.ratios = defaultdict(list)
        self.compiles_left = MOST_COMPILES
        self.add(unsplit_options(Options(machine=CPU)), (TEMP, 1.0, False))

    def add(self, sizes: Options, figures: Figures) -> Attempt:
        peak, seconds, recomputes = figures
        remark = Remark(Kind.PASSED, "EX013", RECOMPUTE, "tensor<f32>", 4, "here", "recomputed")
        outcome = Outcome((remark,) if recomputes else (), ())
        split = Split(peak, 0, ())
        found = Attempt(cast(ir.Module, None), outcome, sizes, memory_of(peak), self.largest, split, split, seconds)
        self.attempts.append(found)
        return found

    def attempt(self, sizes: Options) -> Attempt:
        return self.add(sizes, self.figures(sizes))


@pytest.fixture
def search_for(monkeypatch: pytest.MonkeyPatch) -> Searched:
    def search(
        ops: int, limit: int, figures: Callable[[Options], Figures], has_calls: bool = False
    ) -> tuple[Given, Attempt | None]:
        monkeypatch.setattr(order, "number_of_ops", lambda module: ops)
        given = Given(limit, figures, has_calls=has_calls)
        sizes = ways(memory_of(TEMP), TEMP // 2, Options(machine=CPU))
        for _ in try_ways(given, sizes, until_one_fits=True):
            pass
        return given, fastest_that_fits(given)

    return search


@pytest.mark.parametrize("ops", [SMALL, LARGE])
def test_a_threshold_between_two_that_change_nothing_is_tried(search_for: Searched, ops: int) -> None:
    def figures(way: Options) -> Figures:
        return (300 * MB, 1.3, False) if way.size_threshold == TEMP // 256 else (TEMP, 1.0, False)

    _, found = search_for(ops, 500 * MB, figures)
    assert found is not None and found.options.size_threshold == TEMP // 256


def test_what_is_left_out_is_tried_if_nothing_fits(search_for: Searched) -> None:
    search, found = search_for(SMALL, 10 * MB, lambda way: (20 * MB, 1.0 + way.slice_bytes / TEMP, False))
    tried = {(way.options.size_threshold, way.options.slice_bytes) for way in search.attempts[1:]}
    every = ways(memory_of(TEMP), TEMP // 2, Options(machine=CPU))
    assert found is None and tried == {(way.size_threshold, way.slice_bytes) for way in every}


def slices_below_the_cache(search: Given) -> list[tuple[int, bool]]:
    """The bytes of all slices smaller than the cache's, in the order of the attempts, and where library calls are."""
    tried = [found.options for found in search.attempts[1:] if found.options.slice_bytes < CACHE]
    return [(way.slice_bytes, way.calls_in_loops) for way in tried]


@pytest.mark.parametrize(("limit", "tried"), [(15, [62_500, 1_000_000, 250_000]), (10, [62_500, 1_000_000])])
def test_of_a_large_module_fewer_sizes_are_tried_if_the_smallest_do_not_fit(
    search_for: Searched, limit: int, tried: list[int]
) -> None:
    search, found = search_for(LARGE, limit * MB, lambda way: (20 * MB + way.slice_bytes, 1.0, False))
    sizes = [size for size, _ in slices_below_the_cache(search)]
    assert found is None and sizes == tried


def test_of_a_large_module_all_sizes_are_tried_until_one_fits_if_the_smallest_do(search_for: Searched) -> None:
    def figures(way: Options) -> Figures:
        return 20 * MB + way.slice_bytes, 2.0 if way.slice_bytes < MB // 2 else 1.0, False

    search, found = search_for(LARGE, 25 * MB, figures)  # a fifth stays free
    sizes = [size for size, _ in slices_below_the_cache(search)]
    assert sizes == [62_500, 2_000_000, 1_000_000, 500_000]
    assert found is not None and found.options.slice_bytes == 500_000


@pytest.mark.parametrize(("seconds", "tried"), [(1.0, 2_000_000), (0.7, 62_500)])
def test_the_smallest_slices_end_a_search_only_if_no_larger_ones_are_faster(
    search_for: Searched, seconds: float, tried: int
) -> None:
    """Those that are tried first, to see what slices can save, fit and are about as fast as the original."""

    def figures(way: Options) -> Figures:
        return 20 * MB + way.slice_bytes, seconds if way.slice_bytes < MB // 2 else 0.8, False

    search, found = search_for(LARGE, 27 * MB, figures)  # a fifth stays free
    sizes = [size for size, _ in slices_below_the_cache(search)]
    assert sizes == ([62_500] if tried == 62_500 else [62_500, tried])
    assert found is not None and found.options.slice_bytes == tried


@pytest.mark.parametrize("gain", [0, MB])
def test_calls_stay_behind_the_loops_if_small_slices_gain_nothing_by_them(search_for: Searched, gain: int) -> None:
    def figures(way: Options) -> Figures:
        return 20 * MB + way.slice_bytes - gain * way.calls_in_loops, 1.0 + 0.5 * way.calls_in_loops, False

    search, _ = search_for(LARGE, 15 * MB, figures, has_calls=True)
    within = [size for size, in_loops in slices_below_the_cache(search) if in_loops]
    assert within == ([62_500, 1_000_000, 250_000] if gain else [62_500])


def with_a_plateau(way: Options) -> Figures:
    """Times with one minimum over the sizes, and almost equal ones from the cache's size up."""
    times = {64: 1.2, 32: 1.2, 16: 1.199, 4: 1.2, 2: 0.8, 1: 0.7}
    seconds = 1.5 if is_coarse(way) else times.get(way.slice_bytes // MB, 0.9)
    return 6 * way.slice_bytes + way.size_threshold // 8, seconds, False


LIMITS = tuple(limit * MB for limit in (5, 10, 20, 40, 200, 700, 2000))


@pytest.mark.parametrize("ops", [SMALL, LARGE])
def test_each_limit_is_met_for_which_some_size_fits(search_for: Searched, ops: int) -> None:
    assert all(search_for(ops, limit, with_a_plateau)[1] is not None for limit in LIMITS)


def test_a_larger_limit_gives_no_slower_program_of_few_ops(search_for: Searched) -> None:
    """Of many ops it may: smaller slices are not planned where larger ones fit."""
    seconds = [found.seconds for limit in LIMITS if (found := search_for(SMALL, limit, with_a_plateau)[1]) is not None]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize("limit", [200, 700])
def test_slices_of_all_tensors_are_tried_if_the_largest_alone_are_slow(search_for: Searched, limit: int) -> None:
    def figures(way: Options) -> Figures:
        return (500 * MB, 1.2, False) if is_coarse(way) else (100 * MB, 0.5 if way.slice_bytes == CACHE else 0.9, False)

    _, found = search_for(LARGE, limit * MB, figures)
    assert found is not None and found.seconds == 0.5


def test_thresholds_that_are_slow_for_they_recompute_leave_nothing_out(search_for: Searched) -> None:
    def figures(way: Options) -> Figures:
        if is_coarse(way):
            return (100 * MB, 1.9, True) if way.size_threshold == TEMP // 256 else (300 * MB, 1.4, True)
        return (100 * MB, 1.3, False) if way.slice_bytes <= CACHE else (400 * MB, 1.5, False)

    _, found = search_for(LARGE, 150 * MB, figures)
    assert found is not None and found.seconds == 1.3


def test_library_calls_in_loops_are_tried_between_equal_thresholds(search_for: Searched) -> None:
    def figures(way: Options) -> Figures:
        if not way.calls_in_loops or way.size_threshold > TEMP // 256:
            return TEMP, 1.0, False
        return (400 * MB, 1.3, False) if way.size_threshold == TEMP // 256 else (450 * MB, 3.0, False)

    _, found = search_for(SMALL, 600 * MB, figures, has_calls=True)
    assert found is not None and found.options.calls_in_loops and found.seconds == 1.3


@pytest.mark.parametrize("ops", [SMALL, LARGE])
def test_slices_larger_than_the_room_come_last(search_for: Searched, ops: int) -> None:
    search, _ = search_for(ops, 3 * MB, lambda way: (TEMP, 1.0 + way.slice_bytes / TEMP, False))
    is_over = [found.options.slice_bytes > 3 * MB for found in search.attempts[1:]]
    assert is_over == sorted(is_over) and any(is_over) and not all(is_over)


LARGER = 2_000  # ops: more than are tried in all ways


@pytest.mark.parametrize(
    ("limit", "largest", "peaks", "seconds", "tried", "taken"),
    [
        # As long as they get faster.
        (500, TEMP, {}, {16: 1.6, 32: 1.3, 64: 1.3}, [16, 32, 64], 32),
        # No faster at once: half of that.
        (500, TEMP, {}, {16: 2.0}, [16, 8], 4),
        (500, TEMP, {}, {16: 2.5, 8: 1.3}, [16, 8], 8),
        # They do not fit: half of that.
        (500, TEMP, {16: 600}, {8: 1.3}, [16, 8], 8),
        (500, TEMP, {16: 600, 8: 600}, {8: 1.3}, [16, 8], 4),
        (500, TEMP, {32: 600}, {16: 1.6}, [16, 32], 16),
        # The limit leaves no room for such a slice, or no tensor is as large.
        (15, TEMP, {4: 9, 8: 9}, {8: 1.3}, [8], 8),
        (500, 16 * MB, {}, {8: 1.3}, [8], 8),
        (500, 8 * MB, {}, {8: 1.3}, [], 4),
    ],
)
def test_larger_slices_of_a_large_module_are_tried_where_the_first_that_fit_are_slow(
    search_for: Searched,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    largest: int,
    peaks: dict[int, int],
    seconds: dict[int, float],
    tried: list[int],
    taken: int,
) -> None:
    def figures(way: Options) -> Figures:
        size = way.slice_bytes // MB
        return peaks.get(size, 300) * MB, seconds.get(size, 2.0), False

    monkeypatch.setattr(Given, "largest", largest)
    search, found = search_for(LARGER, limit * MB, figures)
    sizes = [each.options.slice_bytes // MB for each in search.attempts[1:]]
    assert sizes == [4, *tried]
    assert found is not None and found.options.slice_bytes == taken * MB


def test_larger_slices_of_a_large_module_are_not_tried_where_the_first_that_fit_are_fast(search_for: Searched) -> None:
    search, found = search_for(LARGER, 500 * MB, lambda way: (300 * MB, 1.2, False))
    assert found is not None and len(search.attempts) == 2


def test_larger_slices_of_a_very_large_module_take_too_long_to_plan(search_for: Searched) -> None:
    search, found = search_for(LARGER + 1, 200 * MB, lambda way: (100 * MB, 2.0, False))
    assert found is not None and len(search.attempts) == 2


@pytest.mark.parametrize(("room", "tried"), [(4096, (128, 16)), (256, (16, 16)), (255, (8, 4))])
def test_in_a_very_large_module_larger_slices_come_first_if_there_is_room_for_many(
    search_for: Searched, room: int, tried: tuple[int, int]
) -> None:
    search, found = search_for(LARGER + 1, room * MB, lambda way: (100 * MB, 2.0, False))
    first, *others = [each.options for each in search.attempts[1:]]
    assert (first.size_threshold // MB, first.slice_bytes // MB) == tried and not others
    assert found is search.attempts[1]


@pytest.mark.parametrize(
    ("ops", "room", "tried"),
    [
        (LARGER + 1, 4096, [(128, 16), (128, 4), (4, 4), (1, 1)]),
        (LARGER + 1, 255, [(8, 4), (4, 4), (1, 1)]),
        (10_000, 255, [(8, 4), (4, 4)]),
    ],
)
def test_small_slices_of_a_very_large_module_come_last_and_the_smallest_never(
    search_for: Searched, ops: int, room: int, tried: list[tuple[int, int]]
) -> None:
    search, found = search_for(ops, room * MB, lambda way: (2 * room * MB, 2.0, False))
    sizes = [each.options for each in search.attempts[1:]]
    assert found is None
    assert [(way.size_threshold // MB, way.slice_bytes // MB) for way in sizes] == tried


def test_larger_slices_are_not_planned_where_smaller_ones_need_far_too_much(search_for: Searched) -> None:
    def figures(way: Options) -> Figures:
        return (900 * MB if way.slice_bytes == CACHE else 300 * MB), 2.0, False

    search, found = search_for(LARGER // 2, 500 * MB, figures)
    assert found is not None and found.options.slice_bytes < CACHE
    assert all(each.options.slice_bytes <= CACHE for each in search.attempts[1:])
