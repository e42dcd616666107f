// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// A slice of a tensor that is spread over devices would be spread as well.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<256x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<256xf32>
// CHECK: return %[[DOT2]]

module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
}
