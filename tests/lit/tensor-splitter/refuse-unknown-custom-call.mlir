// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// Nothing is known of this custom call, so it gets its operand whole.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<256x200xf32>
// CHECK: %[[CALL:.*]] = stablehlo.custom_call @my_kernel(%[[EXP]], %[[V]]) : {{.*}} -> tensor<256xf32>
// CHECK: return %[[CALL]]

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.custom_call @my_kernel(%1, %v) : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
