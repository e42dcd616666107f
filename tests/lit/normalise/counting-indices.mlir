// RUN: %exla-opt %s --passes=normalise | filecheck %s

// logits[arange(8), labels] as JAX writes it, with a choice for negative places of which there are none: row i of the
// logits goes with label i.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[LOGITS:[^:]*]]: tensor<8x50xf32>, %[[LABELS:[^:]*]]: tensor<8xi32>
// CHECK-NEXT: %[[INDEX:.*]] = stablehlo.broadcast_in_dim %[[LABELS]], dims = [0] : (tensor<8xi32>) -> tensor<8x1xi32>
// CHECK-NEXT: %[[PICKED:.*]] = "stablehlo.gather"(%[[LOGITS]], %[[INDEX]])
// CHECK-SAME: collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1
// CHECK-NEXT: return %[[PICKED]]

func.func @main(%logits: tensor<8x50xf32>, %labels: tensor<8xi32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<8xi32>
  %size = stablehlo.constant dense<8> : tensor<8xi32>
  %rows = stablehlo.iota dim = 0 : tensor<8xi32>
  %negative = stablehlo.compare LT, %rows, %zero, SIGNED : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
  %moved = stablehlo.add %rows, %size : tensor<8xi32>
  %chosen = stablehlo.select %negative, %moved, %rows : tensor<8xi1>, tensor<8xi32>
  %0 = stablehlo.broadcast_in_dim %chosen, dims = [0] : (tensor<8xi32>) -> tensor<8x1xi32>
  %1 = stablehlo.broadcast_in_dim %labels, dims = [0] : (tensor<8xi32>) -> tensor<8x1xi32>
  %index = stablehlo.concatenate %0, %1, dim = 1 : (tensor<8x1xi32>, tensor<8x1xi32>) -> tensor<8x2xi32>
  %picked = "stablehlo.gather"(%logits, %index) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<8x50xf32>, tensor<8x2xi32>) -> tensor<8xf32>
  return %picked : tensor<8xf32>
}
