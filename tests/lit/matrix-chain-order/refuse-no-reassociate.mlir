// RUN: %exla-opt %s --passes=matrix-chain-order --no-reassociate | filecheck %s

// Floats stay in their order where that is asked for; integers are exact in any.

// CHECK: stablehlo.dot_general {{.*}} -> tensor<400x300xf32>
// CHECK-NOT: tensor<400x300xi32>

func.func @main(%a: tensor<400x8xf32>, %b: tensor<300x8xf32>, %v: tensor<300xf32>, %c: tensor<400x8xi32>, %d: tensor<300x8xi32>, %w: tensor<300xi32>) -> (tensor<400xf32>, tensor<400xi32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x8xf32>, tensor<300x8xf32>) -> tensor<400x300xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  %2 = stablehlo.dot_general %c, %d, contracting_dims = [1] x [1] : (tensor<400x8xi32>, tensor<300x8xi32>) -> tensor<400x300xi32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<400x300xi32>, tensor<300xi32>) -> tensor<400xi32>
  return %1, %3 : tensor<400xf32>, tensor<400xi32>
}
