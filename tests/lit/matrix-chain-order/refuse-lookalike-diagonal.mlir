// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// Places that are counted along the wrong dimension: the gather reads (0, 1) twice, and no diagonal.

// CHECK: stablehlo.dot_general {{.*}} -> tensor<2x2xi32>
// CHECK: stablehlo.gather

func.func @main(%a: tensor<2x40xi32>, %b: tensor<40x2xi32>, %v: tensor<40x3xi32>, %w: tensor<3x40xi32>) -> tensor<2xi32> {
  %0 = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0] : (tensor<40x3xi32>, tensor<3x40xi32>) -> tensor<40x40xi32>
  %1 = stablehlo.dot_general %a, %0, contracting_dims = [1] x [0] : (tensor<2x40xi32>, tensor<40x40xi32>) -> tensor<2x40xi32>
  %2 = stablehlo.dot_general %1, %b, contracting_dims = [1] x [0] : (tensor<2x40xi32>, tensor<40x2xi32>) -> tensor<2x2xi32>
  %3 = stablehlo.iota dim = 0 : tensor<2xi32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<2xi32>) -> tensor<2x2xi32>
  %5 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<2xi32>) -> tensor<2x0xi32>
  %6 = stablehlo.concatenate %4, %5, dim = 1 : (tensor<2x2xi32>, tensor<2x0xi32>) -> tensor<2x2xi32>
  %7 = "stablehlo.gather"(%2, %6) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2xi32>
  return %7 : tensor<2xi32>
}
