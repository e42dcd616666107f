"""A memory limit is met, or the tool says what the smallest one is and what holds it up."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt.budget import order as order_of_budget
from exla_opt.budget.fit import Fit, fit, try_recomputing, unsplit_options
from exla_opt.budget.measured import Measured
from exla_opt.budget.search import CannotCompile, Search
from exla_opt.budget.ways import ways
from exla_opt.cli.opt import main
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.peak import Memory, predict
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, PASSES, SIZELESS
from exla_opt.remarks import Kind
from exla_opt.runtime.memory import measure_memory
from exla_opt.runtime.target import Compiled
from exla_opt.sizes import format_size, parse_size

SAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"
SORTED = Path(__file__).parents[2] / "tests/lit/tensor-splitter/refuse-sort-dimension.mlir"


def read(path: Path) -> ir.Module:
    return parse_module(path.name, path.read_bytes(), new_context()).module


def measure(data: bytes) -> Measured:
    return Measured(measure_memory(data).peak)


def fitted(path: Path, limit: int, measured: bool = False) -> tuple[Fit, int]:
    """What was found, and the peak that XLA plans for it."""
    found = fit(read(path), DEFAULT_PASSES, Options(), limit, measure if measured else None)
    return found, measure(serialise(found.module, "bytecode")).peak


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("limit", ["1TB", "100MB", "30MB", "12MB"])
def test_a_limit_is_met(limit: str, measured: bool) -> None:
    found, true = fitted(SAMPLE, parse_size(limit), measured)
    assert found.fits and true <= parse_size(limit)
    assert found.peak <= parse_size(limit) and not found.held_by
    assert not measured or found.peak == true


def test_nothing_is_split_that_fits() -> None:
    found, _ = fitted(SAMPLE, parse_size("1TB"))
    assert found.options.split_size is None
    assert not [remark for remark in found.outcome.remarks if "split over" in remark.message]


def test_a_smaller_limit_takes_smaller_slices() -> None:
    slices = [fitted(SAMPLE, parse_size(limit))[0].options.slice_bytes for limit in ("100MB", "30MB", "12MB")]
    assert slices == sorted(slices, reverse=True)


def test_what_holds_up_a_limit_that_cannot_be_met() -> None:
    found, true = fitted(SORTED, parse_size("600KB"))
    assert not found.fits and true > parse_size("600KB")
    assert "65536xf32" in found.held_by and "sort" in found.held_by
    again, _ = fitted(SORTED, found.peak)
    assert again.fits, "the smallest limit that was named can be met"


FACTORED = """
func.func @main(%x: tensor<300x300xf32>) -> tensor<300xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<300x300xf32>) -> tensor<300x300xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
  %2 = "stablehlo.cholesky"(%1) <{lower = true}> : (tensor<300x300xf32>) -> tensor<300x300xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<300x300xf32>, tensor<f32>) -> tensor<300xf32>
  return %3 : tensor<300xf32>
}
"""


def test_a_program_that_stays_as_it_came_says_what_kept_it_large() -> None:
    module = parse_module("factored", FACTORED.encode(), new_context()).module
    found = fit(module, ("normalise", "tensor-splitter"), Options(), 400_000, measure)
    assert not found.fits and found.options.split_size is None, "no split saves anything"
    reasons = [remark.message for remark in found.outcome.remarks if remark.kind is Kind.MISSED]
    assert any("stablehlo.cholesky couples" in reason for reason in reasons), reasons


LIT = SORTED.parent


@pytest.mark.parametrize("name", ["broadcast", "pad-shift", "top-k-along-row"])
@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.name)
def test_the_smallest_limit_depends_on_no_limit_and_is_met(name: str, machine: Machine) -> None:
    def found(limit: int) -> Fit:
        return fit(read(LIT / f"{name}.mlir"), DEFAULT_PASSES, Options(machine=machine), limit)

    smallest = found(1).peak
    assert not found(1).fits and found(smallest).fits
    below = found(smallest - 1)
    assert not below.fits or below.peak < smallest
    assert below.peak <= smallest, "a limit that is missed by a byte names no larger one"


def test_a_slice_in_a_loop_can_hold_up_a_limit() -> None:
    found, true = fitted(SAMPLE, parse_size("4.2MB"))
    assert not found.fits and true < parse_size("4.5MB")
    assert found.held_by.startswith("its arguments and results (4.19MB) and 128x128xf32 (65.5KB) at ")


def test_without_the_splitter_nothing_is_tried_twice() -> None:
    attempts: list[int] = []
    found = fit(read(SAMPLE), ("rce",), Options(), 10**7, tried=lambda _, peak: attempts.append(peak))
    assert len(attempts) == 1 and not found.fits
    assert found.held_by.endswith("not split: tensor-splitter is not among the passes")


def network(layers: int) -> str:
    """The gradient of some layers of 1 MB each."""

    def loss(weights: Sequence[Any], x: Any) -> Any:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x**2).sum()

    rows, weight = jax.ShapeDtypeStruct((4096, 64), jnp.float32), jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return jax.jit(jax.grad(loss)).lower([weight] * layers, rows).as_text()


@pytest.mark.parametrize(("layers", "recomputes_first"), [(6, True), (40, False)])
def test_a_large_module_is_recomputed_only_if_no_split_is_about_as_fast(layers: int, recomputes_first: bool) -> None:
    module = parse_module("m.mlir", network(layers).encode(), new_context()).module
    memory = predict(module)
    tried: list[Options] = []
    limit = memory.peak - memory.temp + memory.temp // 3
    found = fit(module, DEFAULT_PASSES, Options(), limit, tried=lambda sizes, _: tried.append(sizes))
    assert found.fits and (tried[1].split_size is None) == recomputes_first
    assert recomputes_first or all(sizes.split_size is not None for sizes in tried[1:])


def test_a_large_module_is_recomputed_last_if_no_split_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exla_opt.budget.order._SMALL", 0)
    monkeypatch.setattr("exla_opt.budget.choose._ABOUT_AS_FAST", 0.0)
    module = parse_module("m.mlir", network(6).encode(), new_context()).module
    memory = predict(module)
    tried: list[Options] = []
    limit = memory.peak - memory.temp + memory.temp // 2
    found = fit(module, DEFAULT_PASSES, Options(), limit, tried=lambda sizes, _: tried.append(sizes))
    assert found.fits and [sizes.split_size is None for sizes in tried].index(True, 1) == len(tried) - 1


@pytest.mark.parametrize(("size", "is_tried"), [(10**9, False), (500_000, True)])
def test_recomputing_alone_is_not_tried_after_sizes_that_split_nothing(size: int, is_tried: bool) -> None:
    module = parse_module("m.mlir", network(6).encode(), new_context()).module
    search = Search(module, DEFAULT_PASSES, Options(), predict(module).peak // 2, None, False, None)
    search.attempt(unsplit_options(Options()))
    search.attempt(Options(size, size, memory_limit=search.aim))
    tried: list[Options] = []
    try_recomputing(search, lambda sizes, _: tried.append(sizes))
    assert bool(tried) == is_tried and len(search.attempts) == 2 + is_tried


def test_arguments_and_results_hold_up_a_limit_below_them() -> None:
    found, _ = fitted(SORTED, parse_size("300KB"))
    assert not found.fits and found.held_by == "its arguments and results, which alone take 524KB"


class Compiler:
    """Stands for one: its figures are those of `figures`, one after another, the last for all that follow."""

    def __init__(self, *figures: int | str) -> None:
        self.figures = figures
        self.asked: list[bytes] = []

    def __call__(self, data: bytes) -> Measured:
        figure = self.figures[min(len(self.asked), len(self.figures) - 1)]
        self.asked.append(data)
        if isinstance(figure, str):
            raise CannotCompile(figure)
        return Measured(figure, note=f"the {len(self.asked)}th compile")


def test_the_search_goes_on_where_the_compiler_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        order_of_budget, "try_nested", lambda search, sizes, **_: iter(())
    )  # these would be compiled as well
    compiler = Compiler(20_000_001, 20_000_001, 19_000_000)
    found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), 20_000_000, compiler)
    assert (found.fits, found.compiled, found.peak) == (True, True, 19_000_000)
    assert len(compiler.asked) == 3
    assert compiler.asked[-1] == serialise(found.module, "bytecode"), "the figure is of what is written"
    assert found.note == "the 3th compile", "and so is the note"


def test_what_the_compiler_says_fits_although_it_was_predicted_not_to() -> None:
    compiler = Compiler(4_194_304)  # of arguments and results alone, which no split program can do with
    found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), 4_194_304, compiler)
    assert (found.fits, found.compiled, found.held_by) == (True, True, "")


def test_what_is_far_from_the_limit_is_not_compiled() -> None:
    compiler = Compiler(9_000_000)
    found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), 10_000_000, compiler)
    assert found.fits and len(compiler.asked) == 1, "without a split it needs 138 MB"


def test_the_same_program_is_compiled_once() -> None:
    compiler = Compiler(10**9)
    found = fit(read(SORTED), DEFAULT_PASSES, Options(), 900_000, compiler)
    assert not found.fits and found.peak == 10**9
    assert len(set(compiler.asked)) == len(compiler.asked)


def test_what_needs_more_than_predicted_is_not_the_last_that_is_compiled() -> None:
    def compiler(data: bytes) -> Measured:
        predicted = predict(parse_module("", data, new_context()).module).peak
        return Measured(predicted if predicted > 6_000_000 else 30_000_000)

    found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), 1, compiler)
    assert not found.fits and 6_000_000 < found.peak < 30_000_000
    assert fit(read(SAMPLE), DEFAULT_PASSES, Options(), found.peak, compiler).fits


def test_without_a_compiler_the_figure_is_a_prediction() -> None:
    for limit in (20_000_000, 1):
        found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), limit, Compiler("no such call"))
        predicted = fit(read(SAMPLE), DEFAULT_PASSES, Options(), limit)
        assert (found.fits, found.peak, found.compiled) == (predicted.fits, predicted.peak, False)
        assert found.why_predicted == "no such call"


def test_a_program_that_only_the_compiler_refuses_is_not_taken() -> None:
    compiler = Compiler(10**9, "a fault of XLA", 15_000_000)
    found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), 20_000_000, compiler)
    assert (found.fits, found.peak, found.why_predicted) == (True, 15_000_000, "")


@pytest.mark.parametrize("path", [SAMPLE, SORTED])
def test_what_comes_before_all_sizes_runs_once(path: Path) -> None:
    seen: list[str] = []
    found = fit(read(path), DEFAULT_PASSES, Options(), 1, after_pass=lambda name, _: seen.append(name))
    assert seen.index("euclidean-distance") == seen.index("pointwise-convolutions") + 1
    assert seen.count("pointwise-convolutions") == 1
    assert seen.count("rce") == 1 + seen.count("tensor-splitter")  # once more after each split
    assert seen.count("euclidean-distance") == seen.count("tensor-splitter") > 1
    assert [name for name, _ in found.outcome.seconds] == list(DEFAULT_PASSES)


@pytest.mark.parametrize("name", sorted(SIZELESS))
def test_the_passes_before_all_sizes_do_not_look_at_them(name: str) -> None:
    source = inspect.getsource(sys.modules[PASSES[name].__module__].run)
    read = re.findall(r"options\.(\w+)", source)
    assert set(read) <= {"machine", "reassociate"}
    assert source.count("options") - len(read) == source.count("options: Options") == 1, "it hands them to nobody"


@pytest.mark.parametrize("machine", [CPU, GPU], ids=lambda machine: machine.name)
def test_slices_suit_the_machine(machine: Machine) -> None:
    text = SAMPLE.read_text().replace("4096", "131072")  # 64 GB
    module = parse_module("<sample>", text.encode(), new_context()).module
    found = fit(module, DEFAULT_PASSES, Options(machine=machine), 20 * 10**9)
    low, high = (256 * 10**6, 10**9) if machine is GPU else (10**6, 64 * 10**6)
    assert found.fits and low <= found.options.slice_bytes <= high


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments, "-o", "/dev/null"])
    return result.exit_code, result.stderr


def test_the_command_line_says_how_it_fits() -> None:
    code, output = run(str(SAMPLE), "--memory-limit=30MB", "--strict")
    fits, machine, held = output.splitlines()
    assert held.startswith(f"{SAMPLE}: note: peak 21.2MB, compiled, ")
    assert code == 0 and f"{SAMPLE}: remark: fits into 30MB, in slices of 16MB: " in fits
    assert fits.endswith("(as XLA compiles it for this machine's CPU)")
    assert machine == f"{SAMPLE}: note: sizes chosen for this machine's CPU; for a GPU give --target=gpu"
    assert run(str(SAMPLE), "--memory-limit=30MB", "--quiet") == (0, "")


def test_a_named_machine_is_not_named_again() -> None:
    for options in (["--memory-limit=30MB", "--target=cpu"], ["--memory-limit=1GB"]):
        code, output = run(str(SAMPLE), *options)
        assert code == 0 and "sizes chosen" not in output and len(output.splitlines()) == 2


def test_strict_fails_where_it_does_not_fit() -> None:
    for arguments, expected in ((["--strict"], 3), ([], 0), (["--strict", "--quiet"], 3)):
        code, output = run(str(SORTED), "--memory-limit=600KB", *arguments)
        assert code == expected
        assert (
            "warning: does not fit into 600KB; the smallest limit that was reached is 795KB (as XLA compiles" in output
        )


def test_strict_goes_by_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for peak, expected in ((30 * 10**6, 0), (30 * 10**6 + 1, 3)):
        planned = Compiled(Memory(0, 0, 0, peak))
        monkeypatch.setattr("exla_opt.runtime.judge.compiled_memory", lambda data, target, planned=planned: planned)
        code, output = run(str(SAMPLE), "--memory-limit=30MB", "--strict")
        assert code == expected, output


def test_without_jax_the_command_line_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    code, output = run(str(SAMPLE), "--memory-limit=30MB", "--strict")
    assert code == 0 and "(predicted for this machine's CPU, with a margin: jax cannot be loaded: " in output


@pytest.mark.parametrize("options", [["--target=cpu"], ["--target=cuda:h200"], ["--check"]], ids=" ".join)
def test_what_needs_jax_says_so_without_it(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    code, output = run(str(SAMPLE), *options)
    assert code == 1 and output.startswith("Error: jax cannot be loaded: "), output
    assert output.count("\n") == 1


def test_what_xla_refuses_is_predicted(tmp_path: Path) -> None:
    path = tmp_path / "call.mlir"
    call = "%x = stablehlo.custom_call @nobody(%1) : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>"
    path.write_text(SAMPLE.read_text().replace("%4 = stablehlo.divide %1,", f"{call}\n%4 = stablehlo.divide %x,"))
    report = tmp_path / "r.json"
    code, output = run(str(path), "--memory-limit=300MB", f"--report={report}")
    assert code == 0 and "fits into 300MB, without a split: at least " in output
    missing = "the memory of stablehlo.custom_call is not known"
    assert f"(predicted for this machine's CPU, with a margin; {missing}: XLA cannot compile this module: " in output
    data = json.loads(report.read_text())
    assert data["fit"]["unknown"] == data["before"]["unknown"] == ["stablehlo.custom_call"]
    page = tmp_path / "r.html"
    run(str(path), "--memory-limit=300MB", f"--report={page}")
    text = page.read_text()
    assert f"at least {format_size(data['fit']['peak'])} (predicted, with a margin; {missing})" in text
    assert f"at least {format_size(data['before']['memory']['peak'])}" in text


def test_a_gpu_needs_no_plugin_to_be_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exla_opt.runtime.judge.has_gpu_compiler", lambda: False)
    code, output = run(str(SAMPLE), "--target=gpu", "--strict")
    assert code == 0
    assert "fits into 151GB, without a split: " in output
    assert "(predicted for an H200 (gpu), with a margin: compiling for a GPU needs jax's CUDA plugin: pip" in output


def test_the_limit_that_is_told_is_met_as_it_is_written() -> None:
    output = run(str(SAMPLE), "--memory-limit=1B")[1]
    limit = output.partition("that was reached is ")[2].split()[0]
    code, output = run(str(SAMPLE), f"--memory-limit={limit}", "--strict")
    assert code == 0 and f"remark: fits into {limit}, in slices of" in output and "(as XLA compiles it for" in output


@pytest.mark.parametrize(
    "arguments", [("--memory-limit=1GB", "--split-size=1MB"), ("--strict",), ("--memory-limit=0",)]
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(str(SAMPLE), *arguments)[0] == 2


def test_the_timeline_names_what_is_alive_at_the_peak() -> None:
    with new_context() as context:
        module = parse_module("<sample>", SAMPLE.read_bytes(), context).module
        timeline = read_timeline(module)
    assert timeline.peak is not None
    assert timeline.alive_at(timeline.peak)[0].type == "4096x4096xf32"


def test_the_last_bytes_are_not_bought_with_tiny_slices() -> None:
    """Where nothing fits, of all that need about the least the largest slices are written."""
    tried: list[tuple[Options, int]] = []
    text = SAMPLE.read_text()
    module = parse_module("<sample>", text.encode(), new_context()).module
    found = fit(module, DEFAULT_PASSES, Options(), 1, tried=lambda sizes, peak: tried.append((sizes, peak)))
    least = min(peak for _, peak in tried)
    about = [sizes.least_slice_bytes for sizes, peak in tried if peak <= 1.05 * least]
    assert not found.fits and found.options.least_slice_bytes == max(about) > min(about)


def test_smaller_sizes_are_left_out_where_the_peak_is_of_what_they_do_not_split() -> None:
    """A sort of all differences: no slice is small enough, and the smallest ones are not tried."""
    vector = jax.ShapeDtypeStruct((4000,), jnp.float32)

    def summed(x: Any, y: Any) -> Any:
        return (jnp.sort((x[:, None] + y).reshape(-1)) * jnp.exp(x[:, None] - y).reshape(-1)).sum()

    module = parse_module(
        "f", str(jax.jit(summed).lower(vector, vector).compiler_ir("stablehlo")).encode(), new_context()
    )
    tried: list[int] = []
    found = fit(module.module, DEFAULT_PASSES, Options(), 10**7, tried=lambda sizes, _: tried.append(sizes.slice_bytes))
    assert not found.fits and found.peak > 64_000_000
    known = {way.slice_bytes for way in ways(predict(module.module), 10**9, Options())}
    assert min(known) < min(tried) == 125_000
    assert len(tried) <= 10  # slices of 500 KB as well, since all that are larger gain something


def test_other_places_of_calls_leave_no_smaller_sizes_out() -> None:
    """They take more memory here, which says nothing of smaller slices with the calls behind the loops."""

    def likelihood(scale: Any, x: Any, y: Any) -> Any:
        kernel = jnp.exp(-((x[:, None] - x) ** 2) / scale) + jnp.eye(x.size)
        factor = jax.scipy.linalg.cho_factor(kernel, lower=True)
        return y @ jax.scipy.linalg.cho_solve(factor, y) + jnp.log(jnp.diagonal(factor[0])).sum()

    vector = jax.ShapeDtypeStruct((1000,), jnp.float32)
    traced = jax.jit(jax.value_and_grad(likelihood)).lower(jax.ShapeDtypeStruct((), jnp.float32), vector, vector)
    module = parse_module("f", str(traced.compiler_ir("stablehlo")).encode(), new_context())
    found = fit(module.module, DEFAULT_PASSES, Options(), 9 * 10**6, measure)
    assert not found.fits and found.peak < 14_000_000


def held(
    function: Callable[..., Any],
    *arguments: jax.ShapeDtypeStruct,
    limit: int,
    names: Sequence[str] = DEFAULT_PASSES,
) -> str:
    """What holds up a limit that a function of JAX does not meet."""
    text = str(jax.jit(function).lower(*arguments).compiler_ir("stablehlo"))
    module = parse_module("function", text.encode(), new_context()).module
    found = fit(module, names, Options(), limit)
    assert not found.fits
    return found.held_by


def test_a_wider_copy_that_holds_up_a_limit_is_named() -> None:
    table = jax.ShapeDtypeStruct((10_000, 64), jnp.float8_e4m3fn)
    indices, updates = jax.ShapeDtypeStruct((100,), jnp.int32), jax.ShapeDtypeStruct((100, 64), jnp.float8_e4m3fn)
    text = held(lambda t, i, u: t.at[i].add(u), table, indices, updates, limit=2 * 10**6)
    assert text.startswith("its arguments and results (1.29MB) and a copy of 10000x64xf8E4M3FN in f16 (1.28MB) at ")


def test_a_prediction_that_is_far_above_the_compiled_peak_is_named() -> None:
    sizes = jax.ShapeDtypeStruct((65536,), jnp.float32)
    text = str(jax.jit(lambda x: jnp.sort(jnp.sort(x)[::-1] + x)).lower(sizes).compiler_ir("stablehlo"))

    def held_by(part: float) -> str:
        module = parse_module("function", text.encode(), new_context()).module
        peak = int(part * read_timeline(module).memory.peak)
        found = fit(module, DEFAULT_PASSES, Options(), peak - 1, lambda _: Measured(peak))
        assert not found.fits
        return found.held_by

    assert held_by(0.8).endswith(" in all were predicted")
    assert "predicted" not in held_by(1.0)


def test_what_is_never_in_memory_holds_up_nothing() -> None:
    text = """
func.func @main(%x: tensor<65536xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %x : tensor<65536xf32> loc("one line")
  %1 = stablehlo.add %0, %x : tensor<65536xf32> loc("another")
  %2 = "stablehlo.sort"(%1) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %4 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %4 : tensor<i1>
  }) : (tensor<65536xf32>) -> tensor<65536xf32> loc("one line")
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0] :
    (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  return %3 : tensor<f32>
}"""
    found = fit(parse_module("m.mlir", text.encode(), new_context()).module, DEFAULT_PASSES, Options(), 300_000)
    assert "65536xf32 (262KB) at one line: not split: " in found.held_by
    assert "never in memory" not in found.held_by


def test_equal_tensors_that_hold_up_a_limit_together_are_counted() -> None:
    def function(x: jax.Array) -> jax.Array:
        a = x @ x
        b = a @ a
        c = b @ b
        return ((c @ b) @ a).sum()

    text = held(function, jax.ShapeDtypeStruct((500, 500), jnp.float32), limit=2 * 10**6, names=("normalise",))
    assert text.startswith("its arguments and results (1MB), 3MB of tensors no larger and 500x500xf32 (1MB) at ")


def test_a_refusal_of_a_rewritten_program_is_no_lack_of_a_compiler() -> None:
    compiler = Compiler("a fault of ours", 10**9, 15_000_000)
    found = fit(read(SAMPLE), DEFAULT_PASSES, Options(), 20_000_000, compiler)
    assert (found.fits, found.compiled, found.peak, found.why_predicted) == (True, True, 15_000_000, "")
    assert found.before.compiled and found.before.peak == 10**9
