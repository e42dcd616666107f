// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Rows counted along two dimensions of the indices, and one label of each row of three that is known to be one of these:
// two batching dimensions, and the label is left.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<40xf32>
// CHECK: "stablehlo.gather"(%{{.*}}, %{{.*}}) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2],
// CHECK-SAME: operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2]
// CHECK-SAME: (tensor<2x4x5xf32>, tensor<2x4x1xi32>) -> tensor<2x4xf32>
// CHECK: "stablehlo.scatter"
// CHECK-SAME: inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2]
func.func @main(%x: tensor<40xf32>, %i: tensor<2x4xi32>, %v: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<40xf32>) {
  %index = call @index(%i) : (tensor<2x4xi32>) -> tensor<2x4xi32>
  %picked = "stablehlo.gather"(%x, %index) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1>}> : (tensor<40xf32>, tensor<2x4xi32>) -> tensor<2x4xf32>
  %set = "stablehlo.scatter"(%x, %index, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<40xf32>, tensor<2x4xi32>, tensor<2x4xf32>) -> tensor<40xf32>
  return %picked, %set : tensor<2x4xf32>, tensor<40xf32>
}

func.func private @index(%i: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %count = stablehlo.iota dim = 0 : tensor<8xi32>
  %rows = stablehlo.reshape %count : (tensor<8xi32>) -> tensor<2x4xi32>
  %five = stablehlo.constant dense<5> : tensor<2x4xi32>
  %low = stablehlo.constant dense<0> : tensor<i32>
  %high = stablehlo.constant dense<4> : tensor<i32>
  %label = stablehlo.clamp %low, %i, %high : (tensor<i32>, tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
  %first = stablehlo.multiply %rows, %five : tensor<2x4xi32>
  %index = stablehlo.add %first, %label : tensor<2x4xi32>
  return %index : tensor<2x4xi32>
}
