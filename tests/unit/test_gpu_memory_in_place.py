"""What the model says a GPU writes over what: temp of small programs for an H200, as XLA planned it (jaxlib 0.10.2)."""

from __future__ import annotations

import pytest

from tests.predictions import h200_temp

_ADD = "applies stablehlo.add across dimensions"
PROGRAMS = {
    # A loop writes a constant where it reads it, whoever else reads it outside.
    "constant_in_a_loop": f"""
func.func @main(%x: tensor<4096x4096xf32>) -> (tensor<4096x4096xf32>, tensor<4096xf32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<9> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %halves = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<4096x4096xf32>
  %s = stablehlo.add %x, %halves : tensor<4096x4096xf32>
  %i, %a = stablehlo.while(%j = %zero, %p = %s) : tensor<i32>, tensor<4096x4096xf32>
  cond {{
    %c = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %m = stablehlo.maximum %p, %halves : tensor<4096x4096xf32>
    %e = stablehlo.tanh %m : tensor<4096x4096xf32>
    %n = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %n, %e : tensor<i32>, tensor<4096x4096xf32>
  }}
  %y = stablehlo.add %a, %halves : tensor<4096x4096xf32>
  %z = stablehlo.tanh %y : tensor<4096x4096xf32>
  %t = stablehlo.reduce(%z init: %none) {_ADD} = [0] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %z, %t : tensor<4096x4096xf32>, tensor<4096xf32>
}}""",
    # cuSOLVER factors a copy by columns, in its place.
    "factored": """
func.func @main(%x: tensor<2048x2048xf32>) -> tensor<2048xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lu:3 = stablehlo.custom_call @cusolver_getrf_ffi(%x) {
    api_version = 4 : i32, backend_config = {}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0,
      operand_tuple_indices = []>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[0]> : tensor<1xindex>, dense<> : tensor<0xindex>]
  } : (tensor<2048x2048xf32>) -> (tensor<2048x2048xf32>, tensor<2048xi32>, tensor<i32>)
  %a = stablehlo.abs %lu#0 : tensor<2048x2048xf32>
  %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048xf32>
  return %s : tensor<2048xf32>
}""",
    # cuBLAS solves by columns too, in the place of what it solves for; a result is turned back.
    "solved": """
func.func @main(%l: tensor<2048x2048xf32>, %b: tensor<2048x1024xf32>) -> tensor<2048x1024xf32> {
  %x = "stablehlo.triangular_solve"(%l, %b) {left_side = true, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
    : (tensor<2048x2048xf32>, tensor<2048x1024xf32>) -> tensor<2048x1024xf32>
  return %x : tensor<2048x1024xf32>
}""",
    # A product is written over the matrix that is added to it.
    "added_in_place": """
func.func @main(%x: tensor<2048x64xf32>) -> tensor<2048xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.iota dim = 0 : tensor<2048x2048xi32>
  %j = stablehlo.iota dim = 1 : tensor<2048x2048xi32>
  %e = stablehlo.compare EQ, %i, %j : (tensor<2048x2048xi32>, tensor<2048x2048xi32>) -> tensor<2048x2048xi1>
  %c = stablehlo.convert %e : (tensor<2048x2048xi1>) -> tensor<2048x2048xf32>
  %p = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
    : (tensor<2048x64xf32>, tensor<2048x64xf32>) -> tensor<2048x2048xf32>
  %s = stablehlo.add %p, %c : tensor<2048x2048xf32>
  %y = stablehlo.reduce(%s init: %zero) applies stablehlo.maximum across dimensions = [0]
    : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048xf32>
  return %y : tensor<2048xf32>
}""",
    # What reads other places of the tensor that an update writes over is written before that; a scatter at one place is
    # an update.
    "updated_by_neighbours": """
func.func @main(%x: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  %one = stablehlo.constant dense<1> : tensor<2xi32>
  %t = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %u = stablehlo.slice %t [0:2046, 0:2046] : (tensor<2048x2048xf32>) -> tensor<2046x2046xf32>
  %s = stablehlo.negate %u : tensor<2046x2046xf32>
  %y = "stablehlo.scatter"(%t, %one, %s) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) {indices_are_sorted = true, unique_indices = true, scatter_dimension_numbers =
      #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1]>}
    : (tensor<2048x2048xf32>, tensor<2xi32>, tensor<2046x2046xf32>) -> tensor<2048x2048xf32>
  return %y : tensor<2048x2048xf32>
}""",
    # A product is added to what a loop carries in its place, and what only leads to itself is not carried.
    "accumulated": """
func.func @main(%x: tensor<64x2048xf32>) -> tensor<2048x2048xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<4> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<2048x2048xf32>
  %i, %a, %b = stablehlo.while(%j = %zero, %p = %none, %q = %none)
      : tensor<i32>, tensor<2048x2048xf32>, tensor<2048x2048xf32>
  cond {
    %c = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %x, %zero, %j, sizes = [64, 512]
      : (tensor<64x2048xf32>, tensor<i32>, tensor<i32>) -> tensor<64x512xf32>
    %t = stablehlo.concatenate %s, %s, %s, %s, dim = 1
      : (tensor<64x512xf32>, tensor<64x512xf32>, tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x2048xf32>
    %d = stablehlo.dot_general %t, %x, contracting_dims = [0] x [0]
      : (tensor<64x2048xf32>, tensor<64x2048xf32>) -> tensor<2048x2048xf32>
    %u = stablehlo.add %p, %d : tensor<2048x2048xf32>
    %v = stablehlo.cosine %q : tensor<2048x2048xf32>
    %n = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %n, %u, %v : tensor<i32>, tensor<2048x2048xf32>, tensor<2048x2048xf32>
  }
  return %a : tensor<2048x2048xf32>
}""",
}

# Bytes of temp, the larger of those with Triton's and with cuBLAS's products.
TEMPS = {
    "constant_in_a_loop": 272,
    "factored": 16_777_496,
    "solved": 25_166_080,
    "added_in_place": 20_971_536,
    "updated_by_neighbours": 16_744_464,
    "accumulated": 4_719_108,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_is_what_the_compiler_planned(name: str) -> None:
    assert h200_temp(PROGRAMS[name]) == pytest.approx(TEMPS[name], rel=0.01, abs=1000)
