"""A larger limit gives no slower program, a smaller one no larger peak; and the plan is held against all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from exla_opt.budget import order as order_of_budget
from exla_opt.budget.attempt import Attempt
from exla_opt.budget.bound import lower_bound
from exla_opt.budget.choose import CLEARLY_FASTER, fastest, front, much_faster, near_miss, steps
from exla_opt.budget.fit import Fit, fit, unsplit_options
from exla_opt.budget.search import MOST_COMPILES, Search
from exla_opt.budget.ways import coarse_first, is_coarse, ways
from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.peak import Memory
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.shared_searches import shared_searches


@pytest.fixture(autouse=True, scope="module")
def shared() -> Iterator[None]:
    with shared_searches():
        yield


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / 8, axis=-1) @ v


def attention_gradient(q: Any, k: Any, v: Any) -> Any:
    return jax.grad(lambda *tensors: attention(*tensors).sum())(q, k, v)


def sorted_rows(x: Any, y: Any) -> Any:
    return (jnp.sort((x[:, None] + y).reshape(-1)) * jnp.exp(x[:, None] - y).reshape(-1)).sum()


def two_kernels(x: Any, y: Any) -> Any:
    squares = ((x[:, None] - y[None]) ** 2).sum(-1)
    return jnp.exp(-squares).sum(0), jnp.sort(squares, axis=1)[:, :3]


def layers(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for _ in range(4):
            h = jnp.tanh(h @ w)
        return (h**2).mean()

    return jax.grad(loss)(w)


def attention_layers(x: Any, y: Any) -> Any:
    def loss(x: Any) -> Any:
        for _ in range(4):
            x = x + attention(x, y, y)
        return (x**2).mean()

    return jax.grad(loss)(x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "attention": (attention, (f32(2048, 64), f32(2048, 64), f32(2048, 64))),
    "attention_gradient": (attention_gradient, (f32(1024, 32), f32(1024, 32), f32(1024, 32))),
    "sorted_rows": (sorted_rows, (f32(1500), f32(1500))),
    "two_kernels": (two_kernels, (f32(2000, 3), f32(1500, 3))),
    "layers": (layers, (f32(20000, 64), f32(64, 64))),
}


def convolved(x: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def repeated(x: Any) -> Any:
    return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)


def u_net(kernels: Any, x: Any) -> Any:
    def loss(kernels: Any) -> Any:
        first = jax.nn.relu(convolved(x, kernels[0]))
        second = jax.nn.relu(convolved(pooled(first), kernels[1]))
        third = jax.nn.relu(convolved(pooled(second), kernels[2]))
        fourth = jax.nn.relu(convolved(jnp.concatenate([repeated(third), second], -1), kernels[3]))
        return (convolved(jnp.concatenate([repeated(fourth), first], -1), kernels[4]) ** 2).mean()

    return jax.grad(loss)(kernels)


CHANNELS = ((8, 16), (16, 32), (32, 64), (96, 32), (48, 8))
# Each tile of it recomputes.
RECOMPUTING = {"u_net": (u_net, (tuple(f32(3, 3, *each) for each in CHANNELS), f32(8, 32, 32, 8)))}
# With tensors large enough for ways in which others stay unsplit.
LARGE = {"attention_layers": (attention_layers, (f32(3072, 32), f32(3072, 32)))}


def module_of(name: str) -> ir.Module:
    function, arguments = (PROGRAMS | LARGE | RECOMPUTING)[name]
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    return parse_module(name, text.encode(), new_context()).module


def limits_of(name: str, machine: Machine) -> list[int]:
    """Ten limits, from arguments and results alone to all that the program takes."""
    module = module_of(name)
    run_pipeline(module, DEFAULT_PASSES[:2], Options())
    memory = read_timeline(module, machine).memory
    return [
        memory.peak - memory.temp + int(1.3 * memory.temp * part**3) for part in (each / 10 for each in range(1, 11))
    ]


@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_choice_is_monotone_in_the_limit(name: str, machine: Machine) -> None:
    assert_monotone(name, limits_of(name, machine), machine)


def assert_monotone(name: str, limits: Sequence[int], machine: Machine = CPU) -> None:
    found: list[Fit] = []
    for limit in limits:
        found.append(fit(module_of(name), DEFAULT_PASSES, Options(machine=machine), limit))
        assert found[-1].peak <= limit or not found[-1].fits
    assert found[-1].fits, "the last limit leaves room for all that there was"
    for smaller, larger in zip(found, found[1:], strict=False):
        # Where nothing fits, of those that need about the least the fastest is written; both figures are named.
        least = smaller.peak if smaller.smallest is None else smaller.smallest.peak
        assert least <= larger.peak or not larger.fits
        assert smaller.fits <= larger.fits
        assert not smaller.fits or is_no_slower(larger, smaller, machine)


def is_no_slower(larger: Fit, smaller: Fit, machine: Machine) -> bool:
    """Whether the program of the larger limit is as fast; as it came, within what a prediction may be off.

    For a GPU, what fits as it came goes out as it came.
    """
    if larger.options.split_size is None:
        return machine is GPU or larger.seconds <= CLEARLY_FASTER * smaller.seconds
    return steps(larger.seconds) <= steps(smaller.seconds)


def test_what_is_recomputed_for_a_limit_leads_the_search_nowhere_else() -> None:
    """The slices at the peak get smaller as they do where nothing is recomputed: a smaller limit takes the same way."""
    memory = read_timeline(module_of("u_net")).memory
    held = memory.peak - memory.temp
    assert_monotone("u_net", [held + int(part * memory.temp) for part in (0.12, 0.15)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_sizes_chosen_by_hand_are_better(name: str) -> None:
    """All pairs of sizes on a grid: none that needs as little memory is much faster, none needs much less."""
    limits = limits_of(name, CPU)
    chosen = [fit(module_of(name), DEFAULT_PASSES, Options(), limit) for limit in limits[2:7:2]]
    search = Search(module_of(name), DEFAULT_PASSES, Options(), limits[0], None, True, None)
    sizes = [2**power for power in range(16, 26, 2)]
    grid = [search.attempt(Options(threshold, size)) for threshold in sizes for size in sizes if size <= threshold]
    for found in chosen:
        within = [other for other in grid if other.peak <= found.peak]
        assert all(found.seconds <= 1.5 * other.seconds for other in within)
        if not found.fits:
            assert found.peak <= 1.25 * min(other.peak for other in grid)


def test_a_missed_limit_is_not_bought_with_time() -> None:
    search = Search(module_of("attention"), DEFAULT_PASSES, Options(), 1, None, True, None)
    for way in ways(read_timeline(search.module).memory, 10**9, Options()):
        search.attempt(way)
    found = fit(module_of("attention"), DEFAULT_PASSES, Options(), 1)
    assert not found.fits
    about = [other for other in search.attempts if other.peak <= 1.05 * found.peak]
    assert all(found.seconds <= 2 * other.seconds for other in about)


def test_what_a_little_more_memory_would_be_worth_is_said() -> None:
    found = fit(module_of("attention"), DEFAULT_PASSES, Options(), 2_200_000)
    assert found.faster is not None and found.faster.peak > found.peak
    assert 2 * found.faster.seconds < found.seconds
    again = fit(module_of("attention"), DEFAULT_PASSES, Options(), found.faster.peak)
    assert again.fits and steps(again.seconds) <= steps(found.faster.seconds)


def test_no_attempt_larger_than_the_original_is_written_or_advised() -> None:
    search = Search(module_of("attention"), DEFAULT_PASSES, Options(), 1, None, True, None)
    original = search.attempt(unsplit_options(Options()))
    temp = original.predicted.temp

    def other(part: float, times: float) -> Attempt:
        return replace(
            original,
            predicted=replace(original.predicted, temp=int(part * temp)),
            seconds=times * original.seconds,
        )

    search.attempts = [original, other(1.02, 0.1)]
    assert near_miss(search) is original and much_faster(original, search.attempts) is None
    search.attempts.append(other(0.98, 0.2))
    assert near_miss(search) is search.attempts[-1] is much_faster(original, search.attempts)


# Parts of the original's peak, as predicted and as compiled, and of its time.
NEAR = [
    (0.9, 0.9, 3.0, True),
    (0.9, 0.9, 41.0, False),
    (0.5, 0.5, 41.0, True),
    (0.99, 0.99, 1.05, True),
    (0.99, 0.99, 8.0, False),
    (0.9, 1.08, 0.5, False),
    (1.05, 0.9, 0.5, False),
]


@pytest.mark.parametrize(
    ("part", "compiled", "times", "is_written", "has_compiler"),
    [(*row, has_compiler) for row in NEAR for has_compiler in (True, False) if has_compiler or row[0] == row[1]],
)
def test_a_twentieth_of_the_memory_is_worth_half_of_the_time(
    part: float, compiled: float, times: float, is_written: bool, has_compiler: bool
) -> None:
    original = as_it_came()
    memory = original.predicted
    smaller = replace(memory, temp=memory.temp - int((1 - part) * memory.peak))
    other = replace(original, predicted=smaller, seconds=times * original.seconds)
    search = Compiled([original, other], {id(original): memory.peak, id(other): int(compiled * memory.peak)}, 1)
    search.measure = object() if has_compiler else None
    assert near_miss(cast(Search, search)) is search.attempts[is_written]


def test_what_only_the_margin_keeps_from_fitting_is_written() -> None:
    original = as_it_came()
    memory = original.predicted
    smaller = replace(memory, temp=memory.temp - memory.peak // 10)
    other = replace(original, predicted=smaller, seconds=8 * original.seconds)
    assert near_miss(cast(Search, Compiled([original, other], {}, int(0.95 * memory.peak)))) is other


@pytest.mark.parametrize("left", [2, 3, 4])
def test_the_last_compile_is_for_the_original_where_nothing_fits(left: int) -> None:
    original = as_it_came()
    memory = original.predicted

    def other(part: float, times: float) -> Attempt:
        smaller = replace(memory, temp=memory.temp - int((1 - part) * memory.peak))
        return replace(original, predicted=smaller, seconds=times * original.seconds)

    attempts = [original, other(0.9, 8.0), other(0.95, 1.2), other(0.93, 3.0)]
    search = Compiled(attempts, {id(each): memory.peak for each in attempts}, 1, object(), left)
    near_miss(cast(Search, search))
    assert [each.measured is not None for each in attempts] == [True, True, left > 2, left > 3]


def test_no_compile_is_kept_for_an_original_that_was_compiled() -> None:
    original = as_it_came()
    memory = original.predicted
    original.measured = memory.peak
    cheap, fits = (
        replace(original, predicted=replace(memory, temp=memory.temp - memory.peak * part // 20), measured=None)
        for part in (2, 1)
    )
    cheap.seconds, peaks = 8 * original.seconds, {id(cheap): memory.peak, id(fits): memory.peak // 2}
    search = Compiled([original, cheap, fits], peaks, int(0.6 * memory.peak), object(), 2)
    assert near_miss(cast(Search, search)) is fits


def as_it_came() -> Attempt:
    """The original of a search, for this test alone."""
    search = Search(module_of("attention"), DEFAULT_PASSES, Options(), 1, None, True, None)
    return replace(search.attempt(unsplit_options(Options())), measured=None)


@dataclass
class Compiled:
    """A search of which only the compiles are left. peaks: what the compiler says, by the identity of the attempt."""

    attempts: list[Attempt]
    peaks: dict[int, int]
    limit: int
    measure: object = None
    compiles_left: int = MOST_COMPILES

    def compile(self, found: Attempt) -> None:
        if self.measure is not None:
            self.compiles_left -= found.measured is None
            found.measured = self.peaks[id(found)]

    def expected_peak(self, found: Attempt) -> int:
        return found.peak

    def seems_to_fit(self, found: Attempt) -> bool:
        return found.peak <= self.limit


def test_the_front_falls_in_memory_as_it_rises_in_time() -> None:
    search = Search(module_of("attention_gradient"), DEFAULT_PASSES, Options(), 1, None, True, None)
    attempts = [search.attempt(way) for way in ways(read_timeline(search.module).memory, 10**9, Options())]
    chosen = front(attempts)
    assert len(chosen) > 2
    for one, other in zip(chosen, chosen[1:], strict=False):
        assert one.peak > other.peak and steps(one.seconds) < steps(other.seconds)
    for found in attempts:
        assert any(best.peak <= found.peak and steps(best.seconds) <= steps(found.seconds) for best in chosen)
    assert fastest(attempts)[0] is chosen[0] or fastest(attempts)[0].peak >= chosen[0].peak


@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.name)
def test_which_ways_there_are_depends_on_no_limit(machine: Machine) -> None:
    for temp in (0, 10**5, 10**7, 10**9, 10**12):
        found = ways(Memory(1, 1, 0, temp), temp, replace(Options(), machine=machine))
        assert len(set(found)) == len(found) <= 64
        assert found or temp < 10**6


@pytest.mark.parametrize(("name", "reason"), [("sorted_rows", "stablehlo.sort"), ("layers", "arguments and results")])
def test_the_lower_bound_is_below_what_any_sizes_reach(name: str, reason: str) -> None:
    found = fit(module_of(name), DEFAULT_PASSES, Options(), 1)
    assert found.bound is not None and reason in found.bound.reason
    search = Search(module_of(name), DEFAULT_PASSES, Options(), 1, None, True, None)
    attempts = [search.attempt(Options(size, size)) for size in (2**14, 2**16, 2**18, 2**20)]
    assert all(found.bound.bytes <= attempt.predicted.peak for attempt in attempts)


def test_the_lower_bound_counts_the_smallest_tiles_of_a_sort() -> None:
    module = module_of("two_kernels")
    memory = read_timeline(module).memory
    one_row = 1500 * 4
    assert lower_bound(module, memory).bytes == memory.peak - memory.temp + one_row


@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.name)
def test_no_way_leaves_all_tensors_unsplit(machine: Machine) -> None:
    """A network of many tensors has far more temporary memory than the largest of them."""
    for found in ways(Memory(1, 1, 0, 20 * 10**9), 10**8, replace(Options(), machine=machine)):
        assert found.size_threshold < 10**8


def test_coarse_ways_come_first_as_they_find_room() -> None:
    sizes = ways(Memory(1, 1, 0, 32 * 10**10), 10**11, Options())
    first = coarse_first(sizes, 4 * 10**9, 3)
    assert [way.size_threshold for way in first[:4]] == [78125000, 312500000, 1250000000, sizes[0].size_threshold]
    assert sorted(map(repr, first)) == sorted(map(repr, sizes))
    assert not is_coarse(first[3]) and all(map(is_coarse, first[:3]))


def test_a_large_module_is_split_coarsely_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_of_budget, "_OPS_OF_ALL", 1)
    tried: list[Options] = []
    module = module_of("attention_layers")
    found = fit(module, DEFAULT_PASSES, Options(), 35 * 10**6, tried=lambda options, peak: tried.append(options))
    split = [options for options in tried if options.split_size is not None]
    assert found.fits and split and all(map(is_coarse, split))


@pytest.mark.parametrize(("limit", "is_tried"), [(100 * 10**6, True), (35 * 10**6, False)])
def test_no_recomputing_is_tried_alone_where_a_tensor_is_over_the_limit(limit: int, is_tried: bool) -> None:
    tried: list[Options] = []
    module = module_of("attention_layers")
    fit(module, DEFAULT_PASSES, Options(), limit, tried=lambda options, peak: tried.append(options))
    alone = [options for options in tried if options.split_size is None and options.memory_limit is not None]
    assert bool(alone) == is_tried


def test_a_large_tensor_may_be_split_alone() -> None:
    found = ways(Memory(1, 1, 0, 80 * 10**6), 38 * 10**6, Options())
    assert [way.size_threshold for way in found if is_coarse(way)] == [38 * 10**6 - 1]


@pytest.mark.parametrize(("temp", "least"), [(520, 520 / 64), (509, 8), (385, 8), (383, None)])
def test_a_threshold_of_two_slices_is_tried_where_a_part_is_nearly_that(temp: int, least: float | None) -> None:
    found = ways(Memory(1, 1, 0, temp * 10**6), 38 * 10**6, Options())
    expected = [temp * 10**6 // 16, *(() if least is None else (int(least * 10**6),))]
    assert [way.size_threshold for way in found if is_coarse(way)] == expected


CROSS_ENTROPY = """func.func @main(%h: tensor<4096x512xf32>, %w: tensor<512x50257xf32>) -> tensor<4096xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %x = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0]
    : (tensor<4096x512xf32>, tensor<512x50257xf32>) -> tensor<4096x50257xf32>
  %e = stablehlo.exponential %x : tensor<4096x50257xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4096x50257xf32>, tensor<f32>) -> tensor<4096xf32>
  %l = stablehlo.log %s : tensor<4096xf32>
  return %l : tensor<4096xf32>
}"""


@pytest.mark.parametrize("limit", [150 * 10**6, 200 * 10**6, 350 * 10**6, 700 * 10**6])
def test_few_rows_of_logits_are_not_taken_where_more_fit(limit: int) -> None:
    """A product of few rows reads all of the weights for each tile; slices of one cache are 20 rows."""
    with new_context() as context:
        module = parse_module("test", CROSS_ENTROPY.encode(), context).module
        found = fit(module, DEFAULT_PASSES, Options(), limit)
        rows = [build.shape_of(op.results[0])[0] for op in inside_out(found.module, "stablehlo.dot_general")]
        whole = found.before.seconds
    assert found.fits and rows and min(rows) >= 100
    assert found.seconds <= 1.1 * whole


def transformed(x: Any, k: Any) -> Any:
    return jnp.abs(jnp.fft.ifft2(jnp.fft.fft2(x * 2) * k)).sum(0)


def reshaped(x: Any) -> Any:
    return jnp.fft.fft2(x.reshape(512, 256)).reshape(-1)


@pytest.mark.parametrize(
    ("function", "arguments", "least"),
    [
        (transformed, (f32(512, 256), f32(512, 256)), 2 * 8 * 512 * 256),  # complex64, read and computed
        (reshaped, (jax.ShapeDtypeStruct((512 * 256,), jnp.complex64),), 0),  # an argument and a result, as they came
    ],
)
def test_a_fourier_transform_needs_what_it_reads_and_what_it_computes(
    function: Callable[..., Any], arguments: tuple[jax.ShapeDtypeStruct, ...], least: int
) -> None:
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    module = parse_module("transform", text.encode(), new_context()).module
    run_pipeline(module, DEFAULT_PASSES[:2], Options())
    memory = read_timeline(module).memory
    bound = lower_bound(module, memory)
    assert bound.bytes == memory.peak - memory.temp + least
    assert bound.bytes <= measure_memory(serialise(module, "bytecode")).peak <= 1.25 * bound.bytes
