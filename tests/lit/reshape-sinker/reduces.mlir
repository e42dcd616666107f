// RUN: %exla-opt %s --passes=reshape-sinker | filecheck %s

// Groups that are summed as a whole, or kept as a whole.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x5x4x3xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.add across dimensions = [2, 3] : {{.*}} -> tensor<2x5xf32>
// CHECK: %[[MERGED:.*]] = stablehlo.reshape %[[SUM]] : (tensor<2x5xf32>) -> tensor<10xf32>
// CHECK: %[[MAX:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.maximum across dimensions = [0, 3] : {{.*}} -> tensor<5x4xf32>
// CHECK: %[[TURNED:.*]] = stablehlo.transpose %[[MAX]], dims = [1, 0] : (tensor<5x4xf32>) -> tensor<4x5xf32>
// CHECK: return %[[MERGED]], %[[TURNED]]

func.func @main(%x: tensor<2x5x4x3xf32>) -> (tensor<10xf32>, tensor<4x5xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reshape %x : (tensor<2x5x4x3xf32>) -> tensor<10x12xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<10x12xf32>, tensor<f32>) -> tensor<10xf32>
  %2 = stablehlo.transpose %x, dims = [3, 2, 0, 1] : (tensor<2x5x4x3xf32>) -> tensor<3x4x2x5xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.maximum across dimensions = [0, 2] : (tensor<3x4x2x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  return %1, %3 : tensor<10xf32>, tensor<4x5xf32>
}
