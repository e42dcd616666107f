"""Tiles that loops in them cut again: their results, their price, and the search that tries them where all is slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

import exla_opt
from exla_opt.budget import nested as nested_of_budget
from exla_opt.budget import order as order_of_budget
from exla_opt.budget import search as search_of_budget
from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import steps
from exla_opt.budget.fit import fit
from exla_opt.budget.nested import may_nest
from exla_opt.budget.search import Search
from exla_opt.cli.opt import main
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import Machine
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, Outcome, run_pipeline
from exla_opt.remarks import Kind, Remark
from tests.execute import assert_equal_results

ROWS = 2048


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def masked(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T
    causal = jnp.arange(q.shape[0])[:, None] >= jnp.arange(k.shape[0])
    return jax.nn.softmax(jnp.where(causal, scores, -jnp.inf)) @ v


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-((x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T)) @ v


def loss(q: Any, k: Any, v: Any) -> Any:
    return (masked(q, k, v) ** 2).sum()


def heads(q: Any, k: Any, v: Any) -> Any:
    return jax.vmap(attention)(*(x.reshape(4, -1, 16) for x in (q, k, v)))


POINTS = (f32(ROWS, 32), f32(ROWS, 32), f32(ROWS, 32))
# What is cut, and whether two levels should be the faster ones.
PROGRAMS: dict[str, tuple[Any, bool]] = {
    "attention": (attention, True),
    "masked": (masked, True),
    "kernel": (kernel, True),
    "gradient": (jax.grad(loss, argnums=(0, 1, 2)), True),
    "heads": (heads, True),
    "differences": (lambda x, y, v: jnp.abs(x[:, :1] - y[:, 0]).sum(1) + v[:, 0], False),
}
SLICES = Options(size_threshold=64_000, split_size=64_000)


def module_of(name: str, rows: int = ROWS) -> ir.Module:
    text = str(jax.jit(PROGRAMS[name][0]).lower(*(f32(rows, 32) for _ in POINTS)).compiler_ir("stablehlo"))
    return parse_module(name, text.encode(), new_context()).module


def rewritten(module: ir.Module, options: Options) -> ir.Module:
    made = copy_of(module)
    run_pipeline(made, DEFAULT_PASSES, options)
    return made


def depth(module: ir.Module) -> int:
    """How many loops are around the innermost one, with it."""
    most = 0
    for op in inside_out(module, "stablehlo.while"):
        around = 0
        outer: ir.Operation | None = op
        while outer is not None:
            around += outer.name == "stablehlo.while"
            outer = outer.parent
        most = max(most, around)
    return most


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_equal_and_only_products_get_a_second_loop(name: str) -> None:
    module = module_of(name)
    plain, nested = (rewritten(module, replace(SLICES, nested_tiles=nested)) for nested in (False, True))
    assert_equal_results(serialise(module, "text").decode(), serialise(nested, "text").decode())
    times = [read_timeline(each).seconds for each in (plain, nested)]
    if PROGRAMS[name][1]:
        assert depth(nested) >= max(depth(plain), 2) and times[1] * 1.1 < times[0]
        assert read_timeline(nested).memory.temp <= read_timeline(plain).memory.temp + 4 * SLICES.slice_bytes
    else:
        assert serialise(nested, "text") == serialise(plain, "text")


def test_a_slice_that_is_square_already_is_not_cut_again() -> None:
    module = module_of("attention")
    wide = Options(size_threshold=8_000_000, split_size=8_000_000)
    plain, nested = (rewritten(module, replace(wide, nested_tiles=nested)) for nested in (False, True))
    assert serialise(plain, "text") == serialise(nested, "text")


@pytest.mark.parametrize("name", ["attention", "gradient"])
def test_a_search_takes_them_where_a_slice_would_hold_few_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 4 * ROWS  # a slice of a few of them takes longer than the original
    memory = read_timeline(module_of(name, rows)).memory
    limit = memory.peak - memory.temp + memory.temp // 400
    found = fit(module_of(name, rows), DEFAULT_PASSES, Options(), limit)
    assert found.fits and found.options.nested_tiles
    monkeypatch.setattr(order_of_budget, "try_nested", lambda search, sizes, **_: iter(()))
    plain = fit(module_of(name, rows), DEFAULT_PASSES, Options(), limit)
    assert not plain.options.nested_tiles
    assert not plain.fits or steps(found.seconds) < steps(plain.seconds)


def test_a_search_does_not_try_them_where_slices_are_fast() -> None:
    memory = read_timeline(module_of("attention")).memory
    tried: list[Options] = []
    found = fit(
        module_of("attention"), DEFAULT_PASSES, Options(), memory.peak, tried=lambda sizes, _: tried.append(sizes)
    )
    assert found.fits and not any(each.nested_tiles for each in tried)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_splitter_says_where_it_may_cut_them(name: str) -> None:
    plain, nested = (
        run_pipeline(module_of(name), DEFAULT_PASSES, replace(SLICES, nested_tiles=nested)) for nested in (False, True)
    )
    assert any(remark.may_nest for remark in plain.remarks) == PROGRAMS[name][1]
    assert not any(remark.may_nest for remark in nested.remarks)


def test_overlapping_tiles_are_not_said_to_be_cut_again() -> None:
    def twice(x: Any, first: Any, second: Any) -> Any:
        order = ("NHWC", "HWIO", "NHWC")
        for kernel in (first, second):
            x = jnp.tanh(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=order))
        return x.sum((1, 2))

    shapes = (f32(1, 512, 512, 2), f32(3, 3, 2, 2), f32(3, 3, 2, 2))
    text = str(jax.jit(twice).lower(*shapes).compiler_ir("stablehlo"))
    module = parse_module("convolutions", text.encode(), new_context()).module
    remarks = run_pipeline(module, DEFAULT_PASSES, replace(SLICES, nested_tiles=True)).remarks
    assert [remark.may_nest for remark in remarks if remark.code == "EX001"] == [False]


@pytest.mark.parametrize("name", ["attention", "differences"])
def test_a_search_tries_them_only_where_the_splitter_may_cut_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_of_budget, "is_slower", lambda found, unsplit: True)
    memory = read_timeline(module_of(name)).memory
    tried: list[Options] = []
    monkeypatch.setattr(Search, "attempt", noting(Search.attempt, tried))
    fit(module_of(name), DEFAULT_PASSES, Options(), memory.peak - memory.temp + memory.temp // 8)
    assert any(each.nested_tiles for each in tried) == PROGRAMS[name][1]


@pytest.mark.parametrize(("slower", "tries"), [(0.0, True), (100.0, False)])
def test_a_large_module_of_which_something_fits_needs_to_be_much_slower(
    slower: float, tries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested_of_budget, "is_slower", lambda found, unsplit: True)
    monkeypatch.setattr(nested_of_budget, "number_of_ops", lambda module: 1_000)
    monkeypatch.setattr(nested_of_budget, "_MUCH_SLOWER", slower)
    memory = read_timeline(module_of("attention")).memory
    tried: list[Options] = []
    monkeypatch.setattr(Search, "attempt", noting(Search.attempt, tried))
    assert fit(module_of("attention"), DEFAULT_PASSES, Options(), memory.peak - memory.temp + memory.temp // 8).fits
    assert any(each.nested_tiles for each in tried) == tries


@pytest.mark.parametrize(
    ("attempts", "tries"),
    [
        ([(64_000, "EX001", False, True)], True),
        ([(16_000, "EX001", False, True), (32_000, "EX001", False, False)], False),
        ([(16_000, "EX001", False, False), (64_000, "EX001", False, True)], True),  # one of the same size decides
        ([(128_000, "EX001", False, False)], True),  # a larger slice holds more rows
        ([(16_000, "EX001", True, False)], True),  # another placement of library calls
        ([(16_000, "EX305", False, False)], True),  # nothing was split
    ],
)
def test_attempts_of_the_same_size_or_smaller_show_whether_to_try_them(
    attempts: list[tuple[int, str, bool, bool]], tries: bool
) -> None:
    def attempt(size: int, code: str, calls: bool, may_nest: bool) -> SimpleNamespace:
        remark = Remark(Kind.PASSED, code, "tensor-splitter", "8xf32", 32, "here", "", may_nest=may_nest)
        options = Options(size_threshold=size, split_size=size, calls_in_loops=calls)
        return SimpleNamespace(options=options, outcome=Outcome((remark,), ()))

    search = SimpleNamespace(attempts=[attempt(*each) for each in attempts])
    assert may_nest(search, SLICES) == tries  # type: ignore[arg-type]


def test_programs_that_the_splitter_leaves_equal_are_finished_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[ir.Module] = []

    def note(module: ir.Module, machine: Machine) -> Timeline:
        read.append(module)
        return read_timeline(module, machine)

    monkeypatch.setattr(search_of_budget, "read_timeline", note)
    search = Search(module_of("differences"), DEFAULT_PASSES, Options(), 10**9, None, False, None)
    plain, nested = (search.attempt(replace(SLICES, nested_tiles=nested)) for nested in (False, True))
    assert len(read) == 1 and plain.predicted == nested.predicted and nested.options.nested_tiles
    smaller = search.attempt(replace(SLICES, memory_limit=plain.predicted.peak // 2))
    assert len(read) > 1 and smaller.module is not plain.module


def test_a_splitter_that_runs_last_makes_two_programs() -> None:
    names = ("normalise", "recompute", "tensor-splitter", "normalise")
    search = Search(module_of("attention"), names, Options(), 10**9, None, False, None)
    sizes = replace(SLICES, memory_limit=10**9)
    plain, nested = (search.attempt(replace(sizes, nested_tiles=nested)) for nested in (False, True))
    assert plain.module is not nested.module and plain.predicted != nested.predicted


def noting(attempt: Callable[[Search, Options], Attempt], tried: list[Options]) -> Callable[[Search, Options], Attempt]:
    def noted(search: Search, sizes: Options) -> Attempt:
        tried.append(sizes)
        return attempt(search, sizes)

    return noted


def test_python_and_the_command_line_take_them_with_sizes_alone(tmp_path: Path) -> None:
    text = serialise(module_of("attention"), "text").decode()
    size = SLICES.slice_bytes
    found = exla_opt.optimize(text, size_threshold=size, split_size=size, nested_tiles=True)
    plain = exla_opt.optimize(text, size_threshold=size, split_size=size)
    assert found.program.count("stablehlo.while") > plain.program.count("stablehlo.while")
    with pytest.raises(ValueError, match="leave them out"):
        exla_opt.optimize(text, memory_limit="2MB", nested_tiles=True)
    path = tmp_path / "model.mlir"
    path.write_text(text)
    flags = [f"--size-threshold={size}", f"--split-size={size}"]
    made = CliRunner().invoke(main, [str(path), *flags, "--nested-tiles", "--quiet"])
    assert made.exit_code == 0 and made.stdout.count("stablehlo.while") == found.program.count("stablehlo.while")
    refused = CliRunner().invoke(main, [str(path), "--memory-limit=2MB", "--nested-tiles"])
    assert refused.exit_code == 2 and "leave it out" in refused.stderr
