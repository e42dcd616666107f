// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// A B' is read by two products with vectors: recomputed inside both, it is never computed at all.

// CHECK-NOT: 400x300x
// CHECK-COUNT-4: stablehlo.dot_general
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<400x8xf32>, %b: tensor<300x8xf32>, %v: tensor<300xf32>, %w: tensor<400xf32>) -> (tensor<400xf32>, tensor<300xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x8xf32>, tensor<300x8xf32>) -> tensor<400x300xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  %2 = stablehlo.dot_general %0, %w, contracting_dims = [0] x [0] : (tensor<400x300xf32>, tensor<400xf32>) -> tensor<300xf32>
  return %1, %2 : tensor<400xf32>, tensor<300xf32>
}
