"""A tensor and its convert are one thing to split, also where only the wider is over the threshold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import machine_of
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program

_SIZE = 512
NARROW, WIDE = f"tensor<{_SIZE}x{_SIZE}xbf16>", f"tensor<{_SIZE}x{_SIZE}xf32>"
ROWS, SUMS = f"tensor<{_SIZE}x16xbf16>", f"tensor<{_SIZE}xf32>"
# Attention: 0.5 MB of bf16 scores, 1 MB of f32 softmax.
TEXT = f"""
func.func @main(%q: {ROWS}, %k: {ROWS}) -> {ROWS} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %scores = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1] : ({ROWS}, {ROWS}) -> {NARROW}
  %wide = stablehlo.convert %scores : ({NARROW}) -> {WIDE}
  %power = stablehlo.exponential %wide : {WIDE}
  %sum = stablehlo.reduce(%power init: %zero) applies stablehlo.add across dimensions = [1] : ({WIDE}, tensor<f32>) -> {SUMS}
  %spread = stablehlo.broadcast_in_dim %sum, dims = [0] : ({SUMS}) -> {WIDE}
  %soft = stablehlo.divide %power, %spread : {WIDE}
  %weights = stablehlo.convert %soft : ({WIDE}) -> {NARROW}
  %out = stablehlo.dot_general %weights, %k, contracting_dims = [1] x [0] : ({NARROW}, {ROWS}) -> {ROWS}
  return %out : {ROWS}
}}
""".encode()


def rewritten(threshold: int, machine: str = "cpu", text: bytes = TEXT) -> str:
    with new_context() as context:
        module = parse_module("test", text, context).module
        run_pipeline(module, DEFAULT_PASSES, Options(threshold, 100_000, machine=machine_of(machine)))
        return serialise(module, "text").decode()


@pytest.mark.parametrize("threshold", [400_000, 800_000])
def test_the_narrow_tensor_is_split_with_the_wide_one(threshold: int) -> None:
    after = rewritten(threshold)
    assert after.count("stablehlo.while") == 1
    assert NARROW not in after
    assert WIDE not in after
    random = np.random.default_rng(0)
    arguments = [random.standard_normal((_SIZE, 16)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    [expected] = run_program(compile_program(TEXT), arguments)
    [found] = run_program(compile_program(after.encode()), arguments)
    # Rows are computed as before, in other products of matrices: the last of the eight bits of bf16.
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2**-7, atol=2**-7)


def test_what_a_gpu_never_writes_is_no_reason_to_split() -> None:
    after = rewritten(800_000, "cuda:h200")
    assert "stablehlo.while" not in after


# The scores and their powers are computed in bf16; only the sum is f32.
NARROW_POWERS = TEXT.replace(
    f"""  %wide = stablehlo.convert %scores : ({NARROW}) -> {WIDE}
  %power = stablehlo.exponential %wide : {WIDE}
""".encode(),
    f"""  %powers = stablehlo.exponential %scores : {NARROW}
  %power = stablehlo.convert %powers : ({NARROW}) -> {WIDE}
""".encode(),
)


def test_what_is_computed_with_the_narrow_tensor_is_split_as_well() -> None:
    assert NARROW_POWERS != TEXT
    after = rewritten(800_000, text=NARROW_POWERS)
    assert after.count("stablehlo.while") == 1
    assert NARROW not in after
