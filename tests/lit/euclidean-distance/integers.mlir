// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB | filecheck %s

// Integers are exact whatever is multiplied out: nothing is moved to a mean, nothing is clamped.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<100x40xi32>, %[[B:[^:]*]]: tensor<80x40xi32>
// CHECK-NOT: stablehlo.maximum
// CHECK: stablehlo.dot_general %[[A]], %[[B]], contracting_dims = [1] x [1], {{.*}} -> tensor<100x80xi32>
// CHECK-NOT: stablehlo.is_finite

func.func @main(%a: tensor<100x40xi32>, %b: tensor<80x40xi32>) -> tensor<100x80xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xi32>) -> tensor<100x80x40xi32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xi32>) -> tensor<100x80x40xi32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xi32>
  %3 = stablehlo.multiply %2, %2 : tensor<100x80x40xi32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xi32>, tensor<i32>) -> tensor<100x80xi32>
  return %4 : tensor<100x80xi32>
}
