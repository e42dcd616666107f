// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// The row sums of A B are A times the row sums of B.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<400x8xf32>, %[[B:[^:]*]]: tensor<8x300xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[B]] init: {{.*}} applies stablehlo.add across dimensions = [1]
// CHECK-NEXT: %[[ROWS:.*]] = stablehlo.dot_general %[[A]], %[[SUM]], contracting_dims = [1] x [0]{{.*}} -> tensor<400xf32>
// CHECK-NEXT: return %[[ROWS]]

func.func @main(%a: tensor<400x8xf32>, %b: tensor<8x300xf32>) -> tensor<400xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<400x8xf32>, tensor<8x300xf32>) -> tensor<400x300xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<400x300xf32>, tensor<f32>) -> tensor<400xf32>
  return %1 : tensor<400xf32>
}
