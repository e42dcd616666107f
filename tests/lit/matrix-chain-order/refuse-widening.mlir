// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// A dot that widens its result is where a product ends.

// CHECK: stablehlo.dot_general {{.*}} -> tensor<400x300xf32>
// CHECK-NEXT: stablehlo.dot_general {{.*}} -> tensor<400xf32>

func.func @main(%a: tensor<400x8xbf16>, %b: tensor<300x8xbf16>, %v: tensor<300xf32>) -> tensor<400xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x8xbf16>, tensor<300x8xbf16>) -> tensor<400x300xf32>
  %2 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  return %2 : tensor<400xf32>
}
