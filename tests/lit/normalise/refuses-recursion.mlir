// RUN: not %exla-opt %s --passes=normalise 2>&1 | filecheck %s

// CHECK: refuses-recursion.mlir:8:8: error: function @main calls itself: recursion cannot be compiled
// CHECK-NEXT: %0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: ^

func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
