// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Rows that reach beyond the operand, where a gather clamps; rows that depend on an argument; a count that wraps round.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-NOT: batching_dims
// CHECK: return

func.func @main(%x: tensor<8x50xf32>, %i: tensor<8x1xi32>, %y: tensor<200x5xf32>, %j: tensor<200x1xi8>) -> (tensor<8xf32>, tensor<8xf32>, tensor<200xf32>) {
  %count = stablehlo.iota dim = 0 : tensor<8x1xi32>
  %one = stablehlo.constant dense<1> : tensor<8x1xi32>
  %beyond = stablehlo.add %count, %one : tensor<8x1xi32>
  %0 = stablehlo.concatenate %beyond, %i, dim = 1 : (tensor<8x1xi32>, tensor<8x1xi32>) -> tensor<8x2xi32>
  %first = "stablehlo.gather"(%x, %0) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<8x50xf32>, tensor<8x2xi32>) -> tensor<8xf32>
  %moved = stablehlo.add %count, %i : tensor<8x1xi32>
  %1 = stablehlo.concatenate %moved, %i, dim = 1 : (tensor<8x1xi32>, tensor<8x1xi32>) -> tensor<8x2xi32>
  %second = "stablehlo.gather"(%x, %1) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<8x50xf32>, tensor<8x2xi32>) -> tensor<8xf32>
  %wraps = stablehlo.iota dim = 0 : tensor<200x1xi8>
  %2 = stablehlo.concatenate %wraps, %j, dim = 1 : (tensor<200x1xi8>, tensor<200x1xi8>) -> tensor<200x2xi8>
  %third = "stablehlo.gather"(%y, %2) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<200x5xf32>, tensor<200x2xi8>) -> tensor<200xf32>
  return %first, %second, %third : tensor<8xf32>, tensor<8xf32>, tensor<200xf32>
}
