// RUN: %exla-opt %s --passes=reshape-sinker | filecheck %s

// Attention scores of TensorFlow: batch and heads are merged for the dot, and split again behind it.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x3x40x8xf32>, %[[K:[^:]*]]: tensor<2x3x50x8xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[Q]], %[[K]], batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : {{.*}} -> tensor<2x3x40x50xf32>
// CHECK-NEXT: return %[[SCORES]]

func.func @main(%q: tensor<2x3x40x8xf32>, %k: tensor<2x3x50x8xf32>) -> tensor<2x3x40x50xf32> {
  %0 = stablehlo.reshape %q : (tensor<2x3x40x8xf32>) -> tensor<6x40x8xf32>
  %1 = stablehlo.reshape %k : (tensor<2x3x50x8xf32>) -> tensor<6x50x8xf32>
  %2 = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<6x40x8xf32>, tensor<6x50x8xf32>) -> tensor<6x40x50xf32>
  %3 = stablehlo.reshape %2 : (tensor<6x40x50xf32>) -> tensor<2x3x40x50xf32>
  return %3 : tensor<2x3x40x50xf32>
}
