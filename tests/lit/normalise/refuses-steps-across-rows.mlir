// RUN: %exla-opt %s --passes=normalise | filecheck %s

// The largest label, 5, is the first element of the next row, and a step of 5 does not divide the 42 elements.

// CHECK-NOT: operand_batching_dims
// CHECK: return
func.func @main(%x: tensor<40xf32>, %y: tensor<42xf32>, %i: tensor<8xi32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %rows = stablehlo.iota dim = 0 : tensor<8xi32>
  %five = stablehlo.constant dense<5> : tensor<8xi32>
  %low = stablehlo.constant dense<0> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %too_high = stablehlo.constant dense<5> : tensor<i32>
  %first = stablehlo.multiply %rows, %five : tensor<8xi32>
  %over = stablehlo.clamp %low, %i, %too_high : (tensor<i32>, tensor<8xi32>, tensor<i32>) -> tensor<8xi32>
  %crossing = stablehlo.add %first, %over : tensor<8xi32>
  %crossed = "stablehlo.gather"(%x, %crossing) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<40xf32>, tensor<8xi32>) -> tensor<8xf32>
  %within = stablehlo.clamp %low, %i, %four : (tensor<i32>, tensor<8xi32>, tensor<i32>) -> tensor<8xi32>
  %index = stablehlo.add %first, %within : tensor<8xi32>
  %picked = "stablehlo.gather"(%y, %index) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<42xf32>, tensor<8xi32>) -> tensor<8xf32>
  return %crossed, %picked : tensor<8xf32>, tensor<8xf32>
}
