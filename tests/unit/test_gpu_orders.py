"""The order of kernels for an H200, by the temp that XLA planned for small programs (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from tests.predictions import h200_temp

PROGRAMS = {
    # A sort of two tensors, of which one is read, runs before one that writes over a result.
    "sorted_twice": """
func.func @main(%x: tensor<2000x3000xf32>) -> (tensor<2000x3000xf32>, tensor<2000x3000xi32>) {
  %s = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %n = stablehlo.not %c : tensor<i1>
    stablehlo.return %n : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<2000x3000xf32>) -> tensor<2000x3000xf32>
  %i = stablehlo.iota dim = 1 : tensor<2000x3000xi32>
  %t:2 = "stablehlo.sort"(%x, %i) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %j: tensor<i32>, %k: tensor<i32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %n = stablehlo.not %c : tensor<i1>
    stablehlo.return %n : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true}
    : (tensor<2000x3000xf32>, tensor<2000x3000xi32>) -> (tensor<2000x3000xf32>, tensor<2000x3000xi32>)
  return %s, %t#1 : tensor<2000x3000xf32>, tensor<2000x3000xi32>
}""",
    # What writes over a carry runs behind all others that read that, or with them.
    "carry_read_before": """
func.func @main(%x: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<9> : tensor<i32>
  %i, %a, %e = stablehlo.while(%j = %zero, %p = %x, %q = %x)
    : tensor<i32>, tensor<2048x2048xf32>, tensor<2048x2048xf32>
  cond {
    %c = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.transpose %p, dims = [1, 0] : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
    %v = stablehlo.add %s, %q : tensor<2048x2048xf32>
    %w = stablehlo.tanh %p : tensor<2048x2048xf32>
    %n = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %n, %w, %v : tensor<i32>, tensor<2048x2048xf32>, tensor<2048x2048xf32>
  }
  %y = stablehlo.add %a, %e : tensor<2048x2048xf32>
  return %y : tensor<2048x2048xf32>
}""",
}

# Bytes of temp, the larger of those with Triton's and with cuBLAS's products.
TEMPS = {"sorted_twice": 24_000_280, "carry_read_before": 16_777_985}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_is_what_the_compiler_planned(name: str) -> None:
    assert h200_temp(PROGRAMS[name]) == pytest.approx(TEMPS[name], rel=0.01, abs=1000)
