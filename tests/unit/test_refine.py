"""Regions with slices of their own: the splitter makes them, and the search asks for them where that gains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.budget import order as order_of_budget
from exla_opt.budget.attempt import Attempt, Split
from exla_opt.budget.choose import steps
from exla_opt.budget.fit import Fit, fit, unsplit_options
from exla_opt.budget.refine import try_near_misses, try_refined
from exla_opt.budget.search import Search
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.peak import Memory
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, Outcome, run_pipeline
from exla_opt.remarks import Kind
from tests.execute import assert_equal_results


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def outer_products(alignment: Any, left: Any, right: Any, out: Any) -> Any:
    a, b = alignment @ left, alignment @ right
    return jnp.einsum("sic,sjd->ijcd", a, b).reshape(a.shape[1], b.shape[1], -1) @ out


def two_kernels(x: Any, y: Any) -> Any:
    return jnp.exp(-(x @ x.T)) @ x, jnp.tanh(y @ y.T) @ y


PROGRAMS: dict[str, tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]] = {
    "outer_products": (outer_products, (f32(64, 128, 64), f32(64, 32), f32(64, 32), f32(1024, 64))),
    "two_kernels": (two_kernels, (f32(1024, 4), f32(1536, 4))),
    "two_large_kernels": (two_kernels, (f32(2048, 4), f32(3072, 4))),
}


def module_of(name: str) -> ir.Module:
    function, arguments = PROGRAMS[name]
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    return parse_module(name, text.encode(), new_context()).module


def tiles_of(module: ir.Module, options: Options) -> dict[str, str]:
    """What was split, by place: how, and into which tiles."""
    remarks = run_pipeline(module, DEFAULT_PASSES, options).remarks
    return {each.location: each.text for each in remarks if each.kind is Kind.PASSED and each.code == "EX001"}


def test_one_region_has_smaller_slices_than_the_other() -> None:
    alike = tiles_of(module_of("two_kernels"), Options(10**6, 10**6))
    assert len(alike) == 2
    place, other = alike
    module = module_of("two_kernels")
    finer = tiles_of(module, Options(10**6, 10**6, slices_at=((place, 250_000),)))
    assert finer[other] == alike[other]
    assert ": 12 tiles of 128" in alike[place] and ": 48 tiles of 32" in finer[place]
    assert_equal_results(module_of("two_kernels"), module)


def test_a_place_that_is_nowhere_changes_nothing() -> None:
    alike = tiles_of(module_of("two_kernels"), Options(10**6, 10**6))
    assert tiles_of(module_of("two_kernels"), Options(10**6, 10**6, slices_at=(("nowhere.py:1:1", 1),))) == alike


def within(part: int) -> tuple[Fit, int]:
    """What is found for a limit of a part of the temporary memory, and the limit."""
    memory = read_timeline(module_of("outer_products")).memory
    limit = memory.peak - memory.temp + memory.temp // part
    return fit(module_of("outer_products"), DEFAULT_PASSES, Options(), limit, verify_each=False), limit


def test_the_region_at_the_peak_gets_smaller_slices_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_of_budget, "try_nested", lambda search, sizes, **_: iter(()))  # faster still
    found, limit = within(32)
    assert found.peak <= limit and found.options.slices_at
    assert found.options.least_slice_bytes < found.options.slice_bytes
    monkeypatch.setattr(order_of_budget, "try_refined", lambda search, until_one_fits: iter(()))
    plain, _ = within(32)
    assert not plain.options.slices_at
    assert not plain.fits or steps(found.seconds) < steps(plain.seconds)


def test_a_large_module_has_its_near_misses_refined_before_smaller_slices_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_of_budget, "_SMALL", 0)
    for name in ("try_refined", "try_nested"):
        monkeypatch.setattr(order_of_budget, name, lambda search, *_, **__: iter(()))
    found, limit = within(32)
    assert found.peak <= limit and found.options.slices_at
    monkeypatch.setattr(order_of_budget, "try_near_misses", lambda search: iter(()))
    plain, _ = within(32)
    assert not plain.options.slices_at
    assert not plain.fits or steps(found.seconds) < steps(plain.seconds)


def test_a_near_miss_is_refined_once() -> None:
    search = Search(module_of("outer_products"), DEFAULT_PASSES, Options(), 0, None, False, None)
    search.attempt(unsplit_options(Options()))
    near = search.attempt(Options(10**6, 10**6))
    search.limit = int(near.predicted.peak / 1.2)
    assert list(try_near_misses(search))
    assert not list(try_near_misses(search))


def test_no_sizes_for_each_of_two_regions_are_clearly_better() -> None:
    """Brute force: all pairs of sizes for two regions."""
    name, sizes = "two_large_kernels", (4_000_000, 1_000_000, 250_000, 62_500)
    places = tiles_of(module_of(name), Options(4_000_000, 4_000_000))
    search = Search(module_of(name), DEFAULT_PASSES, Options(), 1, None, False, None)
    others = [
        search.attempt(Options(4_000_000, 4_000_000, slices_at=tuple(zip(places, pair, strict=True))))
        for pair in product(sizes, repeat=2)
    ]
    memory = read_timeline(module_of(name)).memory
    for part in (30, 100):
        limit = memory.peak - memory.temp + memory.temp // part
        found = fit(module_of(name), DEFAULT_PASSES, Options(), limit, verify_each=False)
        within = [other for other in others if other.peak <= limit]
        assert within and found.fits
        assert all(found.seconds <= 1.25 * other.seconds for other in within)


@dataclass
class Steps:
    """A search with given outcomes of smaller slices at the peak: the peaks, in steps, of each start, and the time."""

    limit: int
    attempts: list[Attempt]
    steps: dict[int, list[int]]
    seconds: float = 1.0

    def expected_peak(self, found: Attempt) -> int:
        return found.predicted.peak

    def fits(self, found: Attempt) -> bool:
        return found.predicted.peak <= self.limit

    seems_to_fit = fits

    def attempt(self, options: Options) -> Attempt:
        peak = self.steps[options.slice_bytes].pop(0)
        return near_attempt(options, self.seconds, peak)


def near_attempt(options: Options, seconds: float, peak: int, large: int = 0) -> Attempt:
    split = Split(peak, large, ("model.py:1:1",))
    return Attempt(cast(ir.Module, None), Outcome((), ()), options, Memory(0, 0, 0, peak), 0, split, split, seconds)


def sliced(size: int) -> Options:
    return Options(size, size)


@pytest.mark.parametrize(
    ("peaks", "seconds", "steps", "tried"),
    [
        # The fastest near miss first, until one fits.
        ((110, 120), (2.0, 1.0), {4: [90], 8: [115, 95]}, [(8, 115), (8, 95)]),
        # Its peak stops to fall: the next one.
        ((110, 120), (2.0, 1.0), {4: [90], 8: [119]}, [(8, 119), (4, 90)]),
        # What is far above the limit is left.
        ((130, 120), (1.0, 2.0), {4: [90], 8: [90]}, [(8, 90)]),
        ((130, 140), (1.0, 2.0), {}, []),
    ],
)
def test_the_fastest_near_misses_get_smaller_slices_at_their_peaks(
    peaks: tuple[int, ...], seconds: tuple[float, ...], steps: dict[int, list[int]], tried: list[tuple[int, int]]
) -> None:
    sizes = (4, 8)
    attempts = [
        near_attempt(sliced(size * 10**6), time, peak) for size, time, peak in zip(sizes, seconds, peaks, strict=True)
    ]
    search = Steps(100, attempts, {size * 10**6: falling for size, falling in steps.items()})
    found = list(try_near_misses(cast(Search, search)))
    assert [(each.options.slice_bytes // 10**6, each.predicted.peak) for each in found] == tried
    assert all(each.options.slices_at for each in found)


def test_a_near_miss_of_tensors_that_no_slices_save_is_left() -> None:
    search = Steps(100, [near_attempt(sliced(4 * 10**6), 1.0, 110, large=105)], {})
    assert not list(try_near_misses(cast(Search, search)))


def test_a_near_miss_that_recomputes_is_cut_finer_where_its_own_peak_is() -> None:
    alone, final = Split(500, 400, ("early.py:1:1",)), Split(110, 0, ("late.py:2:2",))
    start = replace(near_attempt(sliced(4 * 10**6), 1.0, 110), split=alone, final=final)
    found = list(try_near_misses(cast(Search, Steps(100, [start], {4 * 10**6: [90]}))))
    assert [[place for place, _ in each.options.slices_at] for each in found] == [["late.py:2:2"]]


@pytest.mark.parametrize(
    ("steps", "tried"),
    [
        # Less is recomputed: the final peak stays.
        ([(120, 110), (95, 90)], 2),
        # What is recomputed leaves less, although the sizes alone leave as much.
        ([(150, 104), (150, 90)], 2),
        ([(150, 110)], 1),
    ],
)
def test_a_near_miss_is_cut_finer_while_its_peak_falls_with_or_without_recomputing(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, int]], tried: int
) -> None:
    def attempt(alone: int, final: int, options: Options) -> Attempt:
        splits = [Split(peak, 0, ("model.py:1:1",)) for peak in (alone, final)]
        return replace(near_attempt(options, 1.0, final), split=splits[0], final=splits[1])

    search = Steps(100, [attempt(150, 110, sliced(4 * 10**6))], {})
    monkeypatch.setattr(search, "attempt", lambda options: attempt(*steps.pop(0), options))
    assert len(list(try_near_misses(cast(Search, search)))) == tried


def test_an_attempt_knows_its_peak_before_and_after_recomputing() -> None:
    """The tensors of a deep network wait for the gradient, and are recomputed within the limit."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jnp.tanh(x @ w)
        return jnp.sum(x)

    text = str(jax.jit(jax.grad(loss)).lower(f32(64, 64), f32(4096, 64)).compiler_ir("stablehlo"))
    module = parse_module("deep", text.encode(), new_context()).module
    search = Search(module, ("recompute",), Options(), 1, None, False, None)
    unsplit = search.attempt(unsplit_options(Options()))
    found = search.attempt(replace(unsplit.options, memory_limit=2 * unsplit.predicted.peak // 3))
    assert found.split.peak == unsplit.predicted.peak
    assert found.final.peak == found.predicted.peak < found.split.peak


@pytest.mark.parametrize(
    ("falling", "seconds", "tried"),
    [
        ([150, 110, 90], 3.0, [150, 110, 90]),
        ([190, 90], 3.0, [190]),
        # Of two loops that are about equally large, only one is smaller now: the step costs little.
        ([190, 90], 1.1, [190, 90]),
    ],
)
def test_a_large_module_far_above_its_limit_is_refined_only_while_that_is_worth_it(
    falling: list[int], seconds: float, tried: list[int]
) -> None:
    size = 64 * 10**6
    search = Steps(100, [near_attempt(sliced(size), 1.0, 200)], {size: falling}, seconds)
    found = list(try_refined(cast(Search, search), until_one_fits=True))
    assert [each.predicted.peak for each in found] == tried
