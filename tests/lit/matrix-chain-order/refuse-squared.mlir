// RUN: %exla-opt %s --passes=matrix-chain-order --size-threshold=10KB | filecheck %s

// The sum of squares of a product: by (A'A)(B'B) it would cost less, be a sum of terms that cancel, and might be negative.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[DOT:.*]] = stablehlo.dot_general {{.*}} -> tensor<300x200xf32>
// CHECK: %[[SQUARE:.*]] = stablehlo.multiply %[[DOT]], %[[DOT]]
// CHECK: stablehlo.reduce(%[[SQUARE]]

func.func @main(%a: tensor<300x4xf32>, %b: tensor<200x4xf32>) -> tensor<300xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<300x4xf32>, tensor<200x4xf32>) -> tensor<300x200xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<300x200xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<300x200xf32>, tensor<f32>) -> tensor<300xf32>
  return %2 : tensor<300xf32>
}
