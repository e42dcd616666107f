// RUN: %exla-opt %s --passes=normalise,tensor-splitter --size-threshold=64KB --split-size=32KB --remarks=passed 2>&1 | filecheck %s

// A scatter of nothing is cut along the rows that it indexes, as one of several updates is.

// CHECK: stablehlo.while
// CHECK: stablehlo.scatter
// CHECK: tensor<0x1xi32>
// CHECK: remark:

func.func @main(%x: tensor<256x1xf32>, %y: tensor<1x256xf32>, %i: tensor<0x1xi32>, %u: tensor<0x256xf32>) -> tensor<256xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<256x1xf32>, tensor<1x256xf32>) -> tensor<256x256xf32>
  %s = "stablehlo.scatter"(%k, %i, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<256x256xf32>, tensor<0x1xi32>, tensor<0x256xf32>) -> tensor<256x256xf32>
  %e = stablehlo.exponential %s : tensor<256x256xf32>
  %r = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x256xf32>, tensor<f32>) -> tensor<256xf32>
  return %r : tensor<256xf32>
}
