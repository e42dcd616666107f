"""exla-opt --check: what was rewritten is run next to the original, at the real size or a smaller one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt.cli.opt import main
from exla_opt.ir.context import new_context
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, PASSES, run_pipeline
from exla_opt.remarks import Remark
from exla_opt.resize.shrink import CannotShrink, Shrunken, needed_bytes, shrink

ROOT = Path(__file__).parents[2]
SAMPLE = str(ROOT / "examples" / "attention.mlir")
SMALL = ("--size-threshold=1MB", "--split-size=500KB")

# A scan whose every step makes a big matrix: the trip count and the bound of an index are dimensions.
SCAN = """func.func @main(%x: tensor<3000x4xf32>, %v: tensor<3000xf32>) -> tensor<3000xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %zero, %a = %v) : tensor<i32>, tensor<3000xf32>
    cond {
      %n = stablehlo.constant dense<3000> : tensor<i32>
      %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %row = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 4] : (tensor<3000x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      %rows = stablehlo.broadcast_in_dim %row, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<3000x4xf32>
      %0 = stablehlo.dot_general %x, %rows, contracting_dims = [1] x [1] : (tensor<3000x4xf32>, tensor<3000x4xf32>) -> tensor<3000x3000xf32>
      %1 = stablehlo.tanh %0 : tensor<3000x3000xf32>
      %2 = stablehlo.dot_general %1, %a, contracting_dims = [1] x [0] : (tensor<3000x3000xf32>, tensor<3000xf32>) -> tensor<3000xf32>
      %3 = stablehlo.tanh %2 : tensor<3000xf32>
      stablehlo.return %next, %3 : tensor<i32>, tensor<3000xf32>
    }
  return %loop#1 : tensor<3000xf32>
}
"""
# Random numbers depend on their position: their dimensions stay.
RANDOM = """func.func @main(%s: tensor<2xui64>) -> tensor<ui32> {
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<100000xui32>)
  %2 = stablehlo.slice %1 [7:8] : (tensor<100000xui32>) -> tensor<1xui32>
  %3 = stablehlo.reshape %2 : (tensor<1xui32>) -> tensor<ui32>
  return %3 : tensor<ui32>
}
"""

# The last line of a run on the sample.
HELD = f"{SAMPLE}: note: peak 12.7MB, predicted, 4.19MB of it arguments and results"


def opt(*arguments: str, stdin: str = "") -> tuple[int, str, list[str]]:
    """The exit status of exla-opt, the module, and the lines on standard error."""
    done = CliRunner().invoke(main, arguments, input=stdin)
    return done.exit_code, done.stdout, done.stderr.splitlines()


def test_at_the_real_size() -> None:
    status, out, said = opt(SAMPLE, "--size-threshold=20MB", "--split-size=8MB", "--check")
    assert (status, said) == (0, [f"{SAMPLE}: checked at the real size: 1 result equal", HELD])
    assert "stablehlo.while" in out
    assert opt(SAMPLE, "--size-threshold=20MB", "--split-size=8MB", "--check", "--quiet") == (0, out, [])


def test_at_a_smaller_size() -> None:
    status, out, said = opt(SAMPLE, "--size-threshold=20MB", "--split-size=8MB", "--check", "--check-memory=20MB")
    checked = f"{SAMPLE}: checked with dimension 4096 as 1024, 64 as 32: 1 result equal"
    assert (status, said) == (0, [checked, HELD])
    assert out == opt(SAMPLE, "--size-threshold=20MB", "--split-size=8MB")[1]


def test_the_sizes_that_a_limit_chose_are_checked() -> None:
    status, _, said = opt(SAMPLE, "--memory-limit=30MB", "--check", "--quiet", "--check-memory=20MB")
    assert (status, said) == (0, [])


def swapped(module: ir.Module, options: Options) -> list[Remark]:
    """A wrong pass: leaves exponentials out."""
    for view in list(module.body.operations[0].regions[0].blocks[0].operations):
        if view.operation.name == "stablehlo.exponential":
            view.operation.results[0].replace_all_uses_with(view.operation.operands[0])
    return []


@pytest.mark.parametrize(("memory", "how"), [("1GB", "at the real size"), ("20MB", "with dimension 4096 as 1024")])
def test_another_result_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory: str, how: str) -> None:
    monkeypatch.setitem(PASSES, "rce", swapped)
    output = tmp_path / "out.mlir"
    status, _, said = opt(SAMPLE, "--size-threshold=20MB", "--check", f"--check-memory={memory}", "-o", str(output))
    assert status == 1
    assert said[-2].startswith(f"{SAMPLE}: error: result 0 differs from that of the original module: ")
    assert how in said[-2]
    assert said[-1].startswith("help: the rewritten module is not written; please report this")
    assert not output.exists()


def test_a_size_that_cannot_be_smaller_is_told() -> None:
    status, out, (said, *_) = opt("--check", "--check-memory=100KB", stdin=RANDOM)
    assert status == 0
    assert "rng_bit_generator" in out
    assert re.fullmatch(
        "<stdin>: warning: not checked: a run needs .*, 100KB may be used, "
        "and its dimensions of 100000 cannot be made smaller consistently",
        said,
    )


def test_an_original_that_cannot_run_is_told() -> None:
    call = 'func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n%0 = stablehlo.custom_call @nobody(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>\n}'  # fmt: skip
    status, out, (said, *_) = opt("--check", stdin=call)
    assert (status, "@nobody" in out) == (0, True)
    assert said.startswith("<stdin>: warning: not checked: the module as it was cannot be run (XLA cannot compile")


def test_results_that_prove_nothing_are_told() -> None:
    nan = "func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {\n%0 = stablehlo.subtract %x, %x : tensor<4xf32>\n%1 = stablehlo.divide %0, %0 : tensor<4xf32>\nreturn %x, %1 : tensor<4xf32>, tensor<4xf32>\n}"
    status, _, said = opt("--check", stdin=nan)
    assert status == 0
    assert said[0] == "<stdin>: warning: the check is inconclusive for result 1: it is NaN throughout on random inputs"


def test_check_memory_is_for_a_check() -> None:
    assert opt("--check-memory=1GB", stdin=RANDOM)[0] == 2


def smaller(text: str, options: Options, limit: int) -> Shrunken:
    context = new_context()
    return next(shrink(lambda: ir.Module.parse(text, context), options, limit))


def test_trip_counts_follow_and_the_same_is_split() -> None:
    options = Options(size_threshold=10**7, split_size=10**6)
    small = smaller(SCAN, options, 2 * 10**6)
    size = next(after for before, after in small.sizes if before == 3000)
    text = str(small.module)
    assert f"dense<{size}> : tensor<i32>" in text
    assert "3000" not in text
    assert needed_bytes(small.module) <= 2 * 10**6
    with new_context():
        real = ir.Module.parse(SCAN)
        splits = [
            [(remark.code, remark.location) for remark in run_pipeline(module, DEFAULT_PASSES, settings).remarks]
            for module, settings in ((real, options), (small.module, small.options))
        ]
    assert splits[0] == splits[1]
    assert [code for code, _ in splits[0]] == ["EX001"]
    assert small.options.slice_bytes / small.options.size_threshold == pytest.approx(0.1, rel=1e-3)


def test_nothing_is_small_enough() -> None:
    with pytest.raises(CannotShrink, match="100000"):
        smaller(RANDOM, Options(), 1000)
