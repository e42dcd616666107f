// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// The caller wants it whole.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x200xf32>
// CHECK: return %[[DOT]]

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>) -> tensor<256x200xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  return %0 : tensor<256x200xf32>
}
