// RUN: %exla-opt %s --passes=reshape-sinker --size-threshold=10KB | filecheck %s

// The bias is repeated to the unmerged shape, and the value that is read twice moves too: both reshapes go.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x50x6xf32>, %[[W:[^:]*]]: tensor<6x70xf32>, %[[BIAS:[^:]*]]: tensor<70xf32>
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4x50x70xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[X]], %[[W]], contracting_dims = [2] x [0] : {{.*}} -> tensor<4x50x70xf32>
// CHECK: %[[WIDE:.*]] = stablehlo.broadcast_in_dim %[[BIAS]], dims = [2] : (tensor<70xf32>) -> tensor<4x50x70xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[DOT]], %[[WIDE]]
// CHECK: %[[KEPT:.*]] = stablehlo.maximum %[[SUM]], %[[ZERO]]
// CHECK: %[[SQUARE:.*]] = stablehlo.multiply %[[KEPT]], %[[KEPT]]
// CHECK-NOT: stablehlo.reshape
// CHECK: return %[[SQUARE]]

func.func @main(%x: tensor<4x50x6xf32>, %w: tensor<6x70xf32>, %bias: tensor<70xf32>) -> tensor<4x50x70xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<200x70xf32>
  %0 = stablehlo.reshape %x : (tensor<4x50x6xf32>) -> tensor<200x6xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<200x6xf32>, tensor<6x70xf32>) -> tensor<200x70xf32>
  %2 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<70xf32>) -> tensor<200x70xf32>
  %3 = stablehlo.add %1, %2 : tensor<200x70xf32>
  %4 = stablehlo.maximum %3, %zero : tensor<200x70xf32>
  %5 = stablehlo.multiply %4, %4 : tensor<200x70xf32>
  %6 = stablehlo.reshape %5 : (tensor<200x70xf32>) -> tensor<4x50x70xf32>
  return %6 : tensor<4x50x70xf32>
}
