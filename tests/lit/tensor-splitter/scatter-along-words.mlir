// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The gradient of a loss that picks one word of each row, cut along the words: in each tile of them the indices are counted
// from where it begins, and those of other tiles lie outside.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<64x8xf32>, %[[W:[^:]*]]: tensor<4096x8xf32>, %[[WORD:[^:]*]]: tensor<64x1x1xi32>, %[[U:[^:]*]]: tensor<64x1xf32>
// CHECK-DAG: %[[NOTHING:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<64x64xf32>
// CHECK-NOT: 64x4096x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SO_FAR:.*]] = %{{.*}})
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %{{.*}} : tensor<i32>
// CHECK: %[[W_TILE:.*]] = stablehlo.dynamic_slice %[[W]], %[[START]], %{{.*}}, sizes = [64, 8]
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[X]], %[[W_TILE]]
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]]
// CHECK: %[[BEFORE:.*]] = stablehlo.broadcast_in_dim %[[START]], dims = [] : (tensor<i32>) -> tensor<64x1x1xi32>
// CHECK: %[[PLACE:.*]] = stablehlo.subtract %[[WORD]], %[[BEFORE]]
// CHECK: %[[PICKED:.*]] = "stablehlo.scatter"(%[[NOTHING]], %[[PLACE]], %[[U]])
// CHECK: %[[BOTH:.*]] = stablehlo.add %[[EXP]], %[[PICKED]]
// CHECK: %[[TILE:.*]] = stablehlo.dot_general %[[BOTH]], %[[X]]
// CHECK: %[[AFTER:.*]] = stablehlo.dynamic_update_slice %[[SO_FAR]], %[[TILE]], %[[START]]
// CHECK: stablehlo.return %{{.*}}, %[[AFTER]]
// CHECK-NOT: 64x4096x
// CHECK: return %[[LOOP]]#1

func.func @main(%x: tensor<64x8xf32>, %w: tensor<4096x8xf32>, %word: tensor<64x1x1xi32>, %u: tensor<64x1xf32>) -> tensor<4096x8xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<64x8xf32>, tensor<4096x8xf32>) -> tensor<64x4096xf32>
  %1 = stablehlo.exponential %0 : tensor<64x4096xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<64x4096xf32>
  %2 = "stablehlo.scatter"(%zero, %word, %u) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %5 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %5 : tensor<f32>
  }) : (tensor<64x4096xf32>, tensor<64x1x1xi32>, tensor<64x1xf32>) -> tensor<64x4096xf32>
  %3 = stablehlo.add %1, %2 : tensor<64x4096xf32>
  %4 = stablehlo.dot_general %3, %x, contracting_dims = [0] x [0] : (tensor<64x4096xf32>, tensor<64x8xf32>) -> tensor<4096x8xf32>
  return %4 : tensor<4096x8xf32>
}
