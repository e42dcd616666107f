// RUN: %exla-opt %s --passes=reshape-sinker --size-threshold=60 | filecheck %s

// The gradients of weights: the product is made as it is wanted. Not where its batch dimension moves as well, and not where
// somebody reads it as it is.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<7x4xf32>, %[[G:[^:]*]]: tensor<7x2x3xf32>, %[[A:[^:]*]]: tensor<5x7x4xf32>, %[[B:[^:]*]]: tensor<5x7x3xf32>
// CHECK: %[[WEIGHTS:.*]] = stablehlo.dot_general %[[X]], %[[G]], contracting_dims = [0] x [0], precision = [HIGHEST, DEFAULT] : {{.*}} -> tensor<4x2x3xf32>
// CHECK: %[[BATCHED:.*]] = stablehlo.dot_general %[[A]], %[[B]], batching_dims = [0] x [0], contracting_dims = [1] x [1] : {{.*}} -> tensor<5x4x3xf32>
// CHECK: %[[OTHER:.*]] = stablehlo.dot_general %[[B]], %[[A]], batching_dims = [0] x [0], contracting_dims = [1] x [1] : {{.*}} -> tensor<5x3x4xf32>
// CHECK: %[[MOVED:.*]] = stablehlo.transpose %[[OTHER]], dims = [2, 1, 0]
// CHECK: %[[READ:.*]] = stablehlo.dot_general %[[X]], %[[X]]
// CHECK: %[[TURNED:.*]] = stablehlo.transpose %[[READ]]
// CHECK: return %[[WEIGHTS]], %[[BATCHED]], %[[MOVED]], %[[READ]], %[[TURNED]]

func.func @main(%x: tensor<7x4xf32>, %g: tensor<7x2x3xf32>, %a: tensor<5x7x4xf32>, %b: tensor<5x7x3xf32>) -> (tensor<4x2x3xf32>, tensor<5x4x3xf32>, tensor<4x3x5xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0], precision = [DEFAULT, HIGHEST] : (tensor<7x2x3xf32>, tensor<7x4xf32>) -> tensor<2x3x4xf32>
  %1 = stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %2 = stablehlo.dot_general %b, %a, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<5x7x3xf32>, tensor<5x7x4xf32>) -> tensor<5x3x4xf32>
  %3 = stablehlo.transpose %2, dims = [0, 2, 1] : (tensor<5x3x4xf32>) -> tensor<5x4x3xf32>
  %4 = stablehlo.dot_general %b, %a, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<5x7x3xf32>, tensor<5x7x4xf32>) -> tensor<5x3x4xf32>
  %5 = stablehlo.transpose %4, dims = [2, 1, 0] : (tensor<5x3x4xf32>) -> tensor<4x3x5xf32>
  %6 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<7x4xf32>, tensor<7x4xf32>) -> tensor<4x4xf32>
  %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1, %3, %5, %6, %7 : tensor<4x2x3xf32>, tensor<5x4x3xf32>, tensor<4x3x5xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
