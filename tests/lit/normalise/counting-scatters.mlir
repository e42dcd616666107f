// RUN: %exla-opt %s --passes=normalise | filecheck %s

// x.at[repeat(arange(4), 2), i].add(v): two updates for each row, by a table that counts.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x50xf32>, %[[I:[^:]*]]: tensor<8x1xi32>, %[[V:[^:]*]]: tensor<8xf32>
// CHECK-DAG: %[[INDEX:.*]] = stablehlo.reshape %[[I]] : (tensor<8x1xi32>) -> tensor<4x2x1xi32>
// CHECK-DAG: %[[UPDATES:.*]] = stablehlo.reshape %[[V]] : (tensor<8xf32>) -> tensor<4x2xf32>
// CHECK: %[[SUM:.*]] = "stablehlo.scatter"(%[[X]], %[[INDEX]], %[[UPDATES]])
// CHECK-SAME: inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2
// CHECK: return %[[SUM]]

func.func @main(%x: tensor<4x50xf32>, %i: tensor<8x1xi32>, %v: tensor<8xf32>) -> tensor<4x50xf32> {
  %rows = stablehlo.constant dense<[[0], [0], [1], [1], [2], [2], [3], [3]]> : tensor<8x1xi32>
  %index = stablehlo.concatenate %i, %rows, dim = 1 : (tensor<8x1xi32>, tensor<8x1xi32>) -> tensor<8x2xi32>
  %sum = "stablehlo.scatter"(%x, %index, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x50xf32>, tensor<8x2xi32>, tensor<8xf32>) -> tensor<4x50xf32>
  return %sum : tensor<4x50xf32>
}
