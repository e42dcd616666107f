// RUN: not %exla-opt %s 2>&1 | filecheck %s

// What the verifier finds has a place as well.

// CHECK: error-types-do-not-match.mlir:10:8: error: {{.*}}
// CHECK-NEXT: {{^}}  %0 = stablehlo.dot_general
// CHECK-NEXT: {{^}}       ^

func.func @main(%a: tensor<4x3xf32>, %b: tensor<4x5xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
