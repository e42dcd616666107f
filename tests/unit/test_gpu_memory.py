"""What the model says of small programs for an H200, against the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict

_ADD = "applies stablehlo.add across dimensions"
PROGRAMS = {
    # A tanh costs more cycles than writing and reading it costs: it is not computed by both of its readers.
    "costly": f"""
func.func @main(%x: tensor<4096x4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %x : tensor<4096x4096xf32>
  %u = stablehlo.multiply %t, %x : tensor<4096x4096xf32>
  %a = stablehlo.reduce(%t init: %zero) {_ADD} = [0] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %b = stablehlo.reduce(%u init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %a, %b : tensor<4096xf32>, tensor<4096xf32>
}}""",
    # The same with what costs next to nothing.
    "cheap": f"""
func.func @main(%x: tensor<4096x4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.abs %x : tensor<4096x4096xf32>
  %u = stablehlo.multiply %t, %x : tensor<4096x4096xf32>
  %a = stablehlo.reduce(%t init: %zero) {_ADD} = [0] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %b = stablehlo.reduce(%u init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %a, %b : tensor<4096xf32>, tensor<4096xf32>
}}""",
    # A top_k of more than 16 is a sort of all elements and of their places, over what it sorts where that dies.
    "large_top": """
func.func @main(%x: tensor<512x8192xf32>) -> (tensor<512x64xf32>, tensor<512x64xi32>) {
  %n = stablehlo.abs %x : tensor<512x8192xf32>
  %v, %i = chlo.top_k(%n, k = 64) : tensor<512x8192xf32> -> (tensor<512x64xf32>, tensor<512x64xi32>)
  return %v, %i : tensor<512x64xf32>, tensor<512x64xi32>
}""",
    # Gaps between the elements of an image are written out.
    "transposed_convolution": """
func.func @main(%x: tensor<4x64x64x32xf32>, %w: tensor<4x4x32x8xf32>) -> tensor<4x128x128x8xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[2, 2], [2, 2]], lhs_dilate = [2, 2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<4x64x64x32xf32>, tensor<4x4x32x8xf32>) -> tensor<4x128x128x8xf32>
  return %y : tensor<4x128x128x8xf32>
}""",
    # cuBLAS reads dimensions in any order, but for the batch in the last place.
    "summed_first": """
func.func @main(%x: tensor<256x128x64xf32>, %w: tensor<256x32xf32>) -> tensor<128x64x32xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0]
    : (tensor<256x128x64xf32>, tensor<256x32xf32>) -> tensor<128x64x32xf32>
  return %y : tensor<128x64x32xf32>
}""",
    # The updates of a scatter are computed inside it.
    "scattered": """
func.func @main(%s: tensor<4000000xf32>, %p: tensor<4000000x1xi32>) -> tensor<1000xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<1000xf32>
  %u = stablehlo.multiply %s, %s : tensor<4000000xf32>
  %y = "stablehlo.scatter"(%z, %p, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<1000xf32>, tensor<4000000x1xi32>, tensor<4000000xf32>) -> tensor<1000xf32>
  return %y : tensor<1000xf32>
}""",
}

# Bytes of temp, the larger of those with Triton's and with cuBLAS's products.
TEMPS = {
    "costly": 67_108_880,
    "cheap": 0,
    "large_top": 33_554_448,
    "transposed_convolution": 8_803_072,
    "summed_first": 4_194_560,
    "scattered": 0,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_is_what_the_compiler_planned(name: str) -> None:
    with new_context() as context:
        module = parse_module(name, PROGRAMS[name].encode(), context).module
        temp = predict(module, machine_of("cuda:h200")).temp
    assert temp == pytest.approx(TEMPS[name], rel=0.01, abs=1000)
