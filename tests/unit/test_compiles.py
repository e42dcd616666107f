"""How often a search asks the compiler, and that what is written is what was compiled, whatever the compiler says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.budget.choose import fits_after_all
from exla_opt.budget.fit import Fit, fit
from exla_opt.budget.measured import Measured
from exla_opt.budget.search import MOST_COMPILES, CannotCompile, Search
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from tests.shared_searches import shared_searches


@pytest.fixture(autouse=True, scope="module")
def shared() -> Iterator[None]:
    with shared_searches():
        yield


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / 8.0) @ v


def solved(x: Any, y: Any) -> Any:
    kernels = jnp.exp(-((x[:, :, None] - x[:, None, :]) ** 2)) + jnp.eye(x.shape[1])
    return jnp.linalg.solve(kernels, y[..., None]).sum(0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "attention": (attention, ((1024, 32), (1024, 32), (1024, 32))),
    "solved": (solved, ((16, 192), (16, 192))),
}


@cache
def text_of(name: str) -> bytes:
    function, shapes = PROGRAMS[name]
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo")).encode()


def parsed(data: bytes) -> ir.Module:
    return parse_module("module", data, new_context()).module


class Spy:
    """A compiler that says a multiple of the prediction, another one each time; 0 stands for a refusal."""

    def __init__(self, machine: Machine, ratios: tuple[float, ...]):
        self.machine, self.ratios = machine, ratios
        self.said: dict[bytes, int] = {}
        self.asked = 0

    def __call__(self, data: bytes) -> Measured:
        ratio = self.ratios[self.asked % len(self.ratios)]
        self.asked += 1
        if not ratio:
            raise CannotCompile("not today")
        memory = read_timeline(parsed(data), self.machine).memory
        peak = memory.peak + int((ratio - 1) * memory.temp)
        assert self.said.setdefault(sha256(data).digest(), peak) == peak, "asked twice"
        return Measured(peak)


def limits_of(name: str, machine: Machine) -> list[int]:
    memory = read_timeline(parsed(text_of(name)), machine).memory
    return [memory.peak - int(part * memory.temp) for part in (0.7, 0.95, 1.0)]


RATIOS = [(1.0,), (1.3,), (3.0,), (0.9, 1.4, 1.1), (1.2, 0.0), (0.0, 1.0), (0.0,)]
SEARCHES = [("attention", CPU, ratios) for ratios in RATIOS]
SEARCHES += [("solved", CPU, (1.3,)), ("solved", CPU, (0.9, 1.4, 1.1)), ("attention", GPU, (1.3,))]


@pytest.mark.parametrize(("name", "machine", "ratios"), SEARCHES, ids=lambda part: getattr(part, "name", str(part)))
def test_no_search_compiles_more_often_than_it_may(name: str, machine: Machine, ratios: tuple[float, ...]) -> None:
    for limit in limits_of(name, machine):
        spy = Spy(machine, ratios)
        found = fit(parsed(text_of(name)), DEFAULT_PASSES, Options(machine=machine), limit, spy)
        assert 0 < spy.asked <= MOST_COMPILES + found.fits  # one more for what fits after all
        assert found.fits == (found.peak <= limit)
        assert_is_what_was_compiled(found, spy)


def assert_is_what_was_compiled(found: Fit, spy: Spy) -> None:
    digest = sha256(serialise(found.module, "bytecode")).digest()
    if spy.said:
        assert found.compiled and found.peak == spy.said[digest]
    else:
        assert found.why_predicted and not found.compiled


def test_what_should_fit_is_compiled_before_nothing_is_said_to_fit() -> None:
    sizes = [Options(machine=CPU, size_threshold=size, split_size=size) for size in (2_000_000, 100_000)]
    spy = Spy(CPU, (1.0,))
    search = Search(parsed(text_of("attention")), DEFAULT_PASSES, sizes[0], 2**40, spy, True, None, compiles=0)
    large, small = map(search.attempt, sizes)
    assert small.predicted.peak < large.predicted.peak
    large.measured = large.predicted.peak
    search.limit = small.predicted.peak - 1
    assert fits_after_all(search) is None
    assert small.measured is None
    search.limit = small.predicted.peak
    assert fits_after_all(search) is small
    assert small.measured == small.predicted.peak


def test_predictions_are_believed_once_compiles_confirm_them() -> None:
    options = Options(machine=CPU, size_threshold=500_000, split_size=500_000)
    search = Search(parsed(text_of("attention")), DEFAULT_PASSES, options, 2**40, Spy(CPU, (1.0,)), True, None)
    found = search.attempt(options)
    search.limit = int(found.predicted.peak / 1.06)
    worth_a_compile = []
    for times in (0, 1):
        search.ratios["split"] = [1.0] * times
        worth_a_compile.append(search.may_fit(found))
    assert worth_a_compile == [True, False]


def test_one_library_call_in_loops_is_compiled_far_above_the_limit() -> None:
    options = Options(machine=CPU, size_threshold=500_000, split_size=500_000, calls_in_loops=True)
    search = Search(parsed(text_of("solved")), DEFAULT_PASSES, options, 2**40, Spy(CPU, (1.0,)), True, None)
    other, found = (search.attempt(replace(options, split_size=size)) for size in (500_000, 250_000))
    search.limit = int(found.predicted.peak / 1.4)
    assert search.may_fit(found)
    other.measured = other.predicted.peak
    assert not search.may_fit(found)
    search.attempts[0] = replace(found, options=replace(found.options, calls_in_loops=False))  # an equal program
    assert not search.may_fit(found)


def test_small_slices_wait_for_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exla_opt.budget.order._SMALL", 0)
    monkeypatch.setattr("exla_opt.budget.choose._ABOUT_AS_FAST", 0.0)
    memory = read_timeline(parsed(text_of("attention")), CPU).memory

    def least_slice(ratio: float) -> int:
        tried: list[int] = []
        module, limit = parsed(text_of("attention")), memory.peak - memory.temp // 4
        fit(
            module,
            DEFAULT_PASSES,
            Options(machine=CPU),
            limit,
            Spy(CPU, (ratio,)),
            tried=lambda sizes, _: tried.append(sizes.least_slice_bytes) if sizes.split_size else None,
        )
        assert tried
        return min(tried)

    first = least_slice(1.0)
    assert least_slice(1.9) < first  # which the compiler says do not fit
