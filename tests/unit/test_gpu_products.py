"""What the model says of products of matrices for an H200, against the temp that XLA planned (jaxlib 0.10.2, no GPU)."""

from __future__ import annotations

import pytest

from tests.predictions import h200_temp

_ADD = "applies stablehlo.add across dimensions"
PROGRAMS = {
    # cuBLAS reads dimensions in any order, but for the batch in the last place.
    "summed_first": """
func.func @main(%x: tensor<256x128x64xf32>, %w: tensor<256x32xf32>) -> tensor<128x64x32xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0]
    : (tensor<256x128x64xf32>, tensor<256x32xf32>) -> tensor<128x64x32xf32>
  return %y : tensor<128x64x32xf32>
}""",
    # A matrix of up to 10 million elements and a vector are multiplied and summed up, without a library. Few blocks of
    # threads sum up columns: what they would read again and again is written out before.
    "vector_by_columns": """
func.func @main(%x: tensor<4000x1000xf32>, %v: tensor<4000xf32>) -> tensor<1000xf32> {
  %y = stablehlo.dot_general %v, %x, contracting_dims = [0] x [0]
    : (tensor<4000xf32>, tensor<4000x1000xf32>) -> tensor<1000xf32>
  return %y : tensor<1000xf32>
}""",
    "vector_by_rows": """
func.func @main(%x: tensor<4000x1000xf32>, %v: tensor<1000xf32>) -> tensor<4000xf32> {
  %y = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
    : (tensor<4000x1000xf32>, tensor<1000xf32>) -> tensor<4000xf32>
  return %y : tensor<4000xf32>
}""",
    # What the kernels read is what was reshaped; the product has the dimensions of the reshape.
    "reshaped_rows": """
func.func @main(%x: tensor<10240xf32>, %y: tensor<10240xf32>) -> tensor<320xf32> {
  %a = stablehlo.reshape %x : (tensor<10240xf32>) -> tensor<320x4x8xf32>
  %b = stablehlo.reshape %y : (tensor<10240xf32>) -> tensor<320x4x8xf32>
  %d = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1, 2] x [1, 2]
    : (tensor<320x4x8xf32>, tensor<320x4x8xf32>) -> tensor<320xf32>
  return %d : tensor<320xf32>
}""",
    # A larger one is multiplied by a library, with its workspace.
    "large_matrix_by_vector": """
func.func @main(%x: tensor<3200x3200xf32>, %v: tensor<3200xf32>) -> tensor<3200xf32> {
  %y = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
    : (tensor<3200x3200xf32>, tensor<3200xf32>) -> tensor<3200xf32>
  return %y : tensor<3200xf32>
}""",
    # Where nothing is summed up there is no product of matrices.
    "outer_product": f"""
func.func @main(%x: tensor<4096xf32>, %y: tensor<4096xf32>) -> tensor<4096xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.dot_general %x, %y, contracting_dims = [] x []
    : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096x4096xf32>
  %e = stablehlo.abs %p : tensor<4096x4096xf32>
  %a = stablehlo.reduce(%e init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %a : tensor<4096xf32>
}}""",
    # Two small products of one matrix are one product of it and of the others, put together.
    "two_products_of_one": """
func.func @main(%x: tensor<1024x1024xf32>, %v: tensor<1024x512xf32>, %w: tensor<1024x256xf32>)
    -> (tensor<1024x512xf32>, tensor<1024x256xf32>) {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
    : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %b = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<1024x1024xf32>, tensor<1024x256xf32>) -> tensor<1024x256xf32>
  return %a, %b : tensor<1024x512xf32>, tensor<1024x256xf32>
}""",
    # The library scales a product and adds a matrix to it, and writes over neither.
    "scaled_and_added": f"""
func.func @main(%x: tensor<2048x64xf32>, %y: tensor<2048x64xf32>, %r: tensor<2048xf32>) -> tensor<2048xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %two = stablehlo.constant dense<-2.0> : tensor<2048x2048xf32>
  %a = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<2048xf32>) -> tensor<2048x2048xf32>
  %b = stablehlo.broadcast_in_dim %r, dims = [1] : (tensor<2048xf32>) -> tensor<2048x2048xf32>
  %c = stablehlo.add %a, %b : tensor<2048x2048xf32>
  %p = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1]
    : (tensor<2048x64xf32>, tensor<2048x64xf32>) -> tensor<2048x2048xf32>
  %q = stablehlo.multiply %p, %two : tensor<2048x2048xf32>
  %d = stablehlo.add %c, %q : tensor<2048x2048xf32>
  %e = stablehlo.maximum %d, %c : tensor<2048x2048xf32>
  %s = stablehlo.reduce(%e init: %zero) {_ADD} = [1] : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048xf32>
  return %s : tensor<2048xf32>
}}""",
    # Of what is ready that runs first which frees most: a product is read before the next one is made.
    "freed_first": f"""
func.func @main(%x: tensor<4096x4096xf32>, %y: tensor<4096x4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
    : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %b = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
    : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %c = stablehlo.reduce(%a init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  %d = stablehlo.reduce(%b init: %zero) {_ADD} = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
  return %c, %d : tensor<4096xf32>, tensor<4096xf32>
}}""",
    # The right operand's rows are the batch, and the sums run over two dimensions: both operands are written in order.
    "batch_of_several_dimensions": """
func.func @main(%x: tensor<300x64x40x20xf32>, %y: tensor<64x80x20x40xf32>) -> tensor<64x300x80xf32> {
  %z = stablehlo.dot_general %x, %y, batching_dims = [1] x [0], contracting_dims = [2, 3] x [3, 2]
    : (tensor<300x64x40x20xf32>, tensor<64x80x20x40xf32>) -> tensor<64x300x80xf32>
  return %z : tensor<64x300x80xf32>
}""",
    # A product is written as a transpose, its only reader, wants it.
    "turned": """
func.func @main(%x: tensor<20x3000x128xf32>, %w: tensor<128x20x100xf32>) -> tensor<3000x20x100xf32> {
  %y = stablehlo.dot_general %w, %x, batching_dims = [1] x [0], contracting_dims = [0] x [2]
    : (tensor<128x20x100xf32>, tensor<20x3000x128xf32>) -> tensor<20x100x3000xf32>
  %z = stablehlo.transpose %y, dims = [2, 0, 1] : (tensor<20x100x3000xf32>) -> tensor<3000x20x100xf32>
  return %z : tensor<3000x20x100xf32>
}""",
    # Or as a product of vectors reads the other operand.
    "turned_for_vectors": """
func.func @main(%x: tensor<16x2000x100xf32>, %a: tensor<16x100x100xf32>) -> tensor<16x2000xf32> {
  %y = stablehlo.dot_general %a, %x, batching_dims = [0] x [0], contracting_dims = [1] x [2]
    : (tensor<16x100x100xf32>, tensor<16x2000x100xf32>) -> tensor<16x100x2000xf32>
  %z = stablehlo.dot_general %x, %y, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1]
    : (tensor<16x2000x100xf32>, tensor<16x100x2000xf32>) -> tensor<16x2000xf32>
  return %z : tensor<16x2000xf32>
}""",
    # A long sum has parts, and operands with as many terms as parts that begin at 16 bytes have together.
    "parts": """
func.func @main(%x: tensor<256x100000xf32>, %y: tensor<256x100000xf32>) -> tensor<256x256xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1]
    : (tensor<256x100000xf32>, tensor<256x100000xf32>) -> tensor<256x256xf32>
  return %z : tensor<256x256xf32>
}""",
    # So has the product of a matrix and itself, which is padded once.
    "parts_of_one": """
func.func @main(%x: tensor<30000x37xf32>) -> tensor<37x37xf32> {
  %z = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
    : (tensor<30000x37xf32>, tensor<30000x37xf32>) -> tensor<37x37xf32>
  return %z : tensor<37x37xf32>
}""",
    # One of narrow floats takes more in a library, which pads all lengths, than in parts.
    "narrow_sum": """
func.func @main(%x: tensor<33x100003xbf16>, %y: tensor<100003x29xbf16>) -> tensor<33x29xbf16> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<33x100003xbf16>, tensor<100003x29xbf16>) -> tensor<33x29xbf16>
  return %z : tensor<33x29xbf16>
}""",
    # Bytes are multiplied along what both operands have side by side.
    "bytes": """
func.func @main(%x: tensor<4096x1024xi8>, %y: tensor<1024x4096xi8>) -> tensor<4096x4096xi32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<4096x1024xi8>, tensor<1024x4096xi8>) -> tensor<4096x4096xi32>
  return %z : tensor<4096x4096xi32>
}""",
    "floats_of_a_byte": """
func.func @main(%x: tensor<2048x1024xf8E4M3FN>, %y: tensor<1024x2048xf8E4M3FN>) -> tensor<2048x2048xbf16> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<2048x1024xf8E4M3FN>, tensor<1024x2048xf8E4M3FN>) -> tensor<2048x2048xbf16>
  return %z : tensor<2048x2048xbf16>
}""",
    # A library has floats of 16 bits in multiples of eight rows, columns and terms.
    "padded": """
func.func @main(%x: tensor<2104x3001xbf16>, %y: tensor<3001x2504xbf16>) -> tensor<2104x2504xbf16> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<2104x3001xbf16>, tensor<3001x2504xbf16>) -> tensor<2104x2504xbf16>
  return %z : tensor<2104x2504xbf16>
}""",
}

# Bytes of temp, the larger of those with Triton's and with cuBLAS's products.
TEMPS = {
    "summed_first": 4_194_560,
    "vector_by_columns": 16_000_000,
    "vector_by_rows": 0,
    "reshaped_rows": 0,
    "large_matrix_by_vector": 4_194_560,
    "outer_product": 0,
    "two_products_of_one": 10_486_016,
    "scaled_and_added": 37_748_752,
    "freed_first": 71_303_440,
    "batch_of_several_dimensions": 82_018_560,
    "turned": 4_194_560,
    "turned_for_vectors": 16_994_320,
    "parts": 213_385_216,
    "parts_of_one": 4_821_248,
    "narrow_sum": 18_598_400,
    "bytes": 8_388_864,
    "floats_of_a_byte": 6_291_712,
    "padded": 31_916_288,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temp_is_what_the_compiler_planned(name: str) -> None:
    assert h200_temp(PROGRAMS[name]) == pytest.approx(TEMPS[name], rel=0.01, abs=1000)
