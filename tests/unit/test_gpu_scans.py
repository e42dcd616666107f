"""What the model says of cumulative ops and of indices, against the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict

PROGRAMS = {
    # Both readers of the running maximum would compute its blocks once more: they are written.
    "read_twice": """
func.func @main(%x: tensor<256x20000xf32>) -> tensor<256xf32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = "stablehlo.reduce_window"(%x, %least) <{padding = dense<[[0, 0], [19999, 0]]> : tensor<2x2xi64>,
    window_dimensions = array<i64: 1, 20000>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<256x20000xf32>, tensor<f32>) -> tensor<256x20000xf32>
  %d = stablehlo.subtract %m, %x : tensor<256x20000xf32>
  %q = stablehlo.divide %d, %m : tensor<256x20000xf32>
  %r = stablehlo.reduce(%q init: %least) applies stablehlo.maximum across dimensions = [1]
    : (tensor<256x20000xf32>, tensor<f32>) -> tensor<256xf32>
  return %r : tensor<256xf32>
}""",
    # Only the maximum reads the sum, as it is never less than 0: the scatter computes the blocks itself.
    "counted": """
func.func @main(%x: tensor<4000000xi32>) -> tensor<10000xi32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %zeros = stablehlo.constant dense<0> : tensor<4000000xi32>
  %ones = stablehlo.constant dense<1> : tensor<4000000xi32>
  %length = stablehlo.constant dense<10000> : tensor<4000000xi32>
  %start = stablehlo.constant dense<0> : tensor<10000xi32>
  %s = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[3999999, 0]]> : tensor<1x2xi64>,
    window_dimensions = array<i64: 4000000>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) : (tensor<4000000xi32>, tensor<i32>) -> tensor<4000000xi32>
  %m = stablehlo.maximum %zeros, %s : tensor<4000000xi32>
  %l = stablehlo.compare LT, %m, %zeros, SIGNED : (tensor<4000000xi32>, tensor<4000000xi32>) -> tensor<4000000xi1>
  %e = stablehlo.add %m, %length : tensor<4000000xi32>
  %i = stablehlo.select %l, %e, %m : tensor<4000000xi1>, tensor<4000000xi32>
  %p = stablehlo.reshape %i : (tensor<4000000xi32>) -> tensor<4000000x1xi32>
  %y = "stablehlo.scatter"(%start, %p, %ones) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) : (tensor<10000xi32>, tensor<4000000x1xi32>, tensor<4000000xi32>) -> tensor<10000xi32>
  return %y : tensor<10000xi32>
}""",
    # There is one row to reverse.
    "one_row_reversed": """
func.func @main(%x: tensor<4000000xi32>) -> tensor<4000000xi32> {
  %row = stablehlo.reshape %x : (tensor<4000000xi32>) -> tensor<1x4000000xi32>
  %turned = stablehlo.reverse %row, dims = [0] : tensor<1x4000000xi32>
  %v = stablehlo.reshape %turned : (tensor<1x4000000xi32>) -> tensor<4000000xi32>
  %n = stablehlo.iota dim = 0 : tensor<4000000xi32>
  %s:2 = "stablehlo.sort"(%v, %n) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
    %l = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) : (tensor<4000000xi32>, tensor<4000000xi32>) -> (tensor<4000000xi32>, tensor<4000000xi32>)
  return %s#1 : tensor<4000000xi32>
}""",
}
TEMPS = {"read_twice": 23_121_920, "counted": 2_000_192, "one_row_reversed": 16_000_016}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_is_what_the_compiler_planned(name: str) -> None:
    with new_context() as context:
        module = parse_module(name, PROGRAMS[name].encode(), context).module
        temp = predict(module, machine_of("cuda:h200")).temp
    assert temp == pytest.approx(TEMPS[name], rel=0.01)
