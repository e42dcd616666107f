// RUN: %exla-opt %s --passes=symmetric-sums --size-threshold=64KB | filecheck %s

// tanh(x_i - x_j) changes its sign with i and j exchanged, and so does its sum.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[ROWS:.*]] = stablehlo.reduce({{.*}} across dimensions = [1]
// CHECK: %[[COLUMNS:.*]] = stablehlo.negate %[[ROWS]] : tensor<150xf32>
// CHECK-NOT: stablehlo.reduce
// CHECK: return %[[ROWS]], %[[COLUMNS]] :

func.func @main(%x: tensor<150xf32>) -> (tensor<150xf32>, tensor<150xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %x_i = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<150xf32>) -> tensor<150x150xf32>
  %x_j = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<150xf32>) -> tensor<150x150xf32>
  %0 = stablehlo.subtract %x_i, %x_j : tensor<150x150xf32>
  %w = stablehlo.tanh %0 : tensor<150x150xf32>
  %1 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  %2 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  return %1, %2 : tensor<150xf32>, tensor<150xf32>
}
