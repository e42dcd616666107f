// RUN: %exla-opt %s --passes=rce | filecheck %s

// A slice of the whole can only start at the beginning. MLIR's own printer writes that of a scalar so that no parser
// takes it back.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x3xf32>, %[[U:[^:]*]]: tensor<4x3xf32>, %[[I:[^:]*]]: tensor<i32>, %[[S:[^:]*]]: tensor<f32>
// CHECK-NEXT: %[[PART:.*]] = stablehlo.dynamic_slice %[[X]], %[[I]], %[[I]], sizes = [4, 2]
// CHECK-NEXT: return %[[X]], %[[U]], %[[S]], %[[PART]]

func.func @main(%x: tensor<4x3xf32>, %u: tensor<4x3xf32>, %i: tensor<i32>, %s: tensor<f32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<f32>, tensor<4x2xf32>) {
  %0 = stablehlo.dynamic_slice %x, %i, %i, sizes = [4, 3] : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  %1 = stablehlo.dynamic_update_slice %x, %u, %i, %i : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  %2 = "stablehlo.dynamic_slice"(%s) {slice_sizes = array<i64>} : (tensor<f32>) -> tensor<f32>
  %3 = stablehlo.dynamic_slice %x, %i, %i, sizes = [4, 2] : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
  return %0, %1, %2, %3 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<f32>, tensor<4x2xf32>
}
