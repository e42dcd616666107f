// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=1MB | filecheck %s

// What fits is left as it is, bit by bit.

// CHECK: stablehlo.subtract {{.*}} : tensor<100x80x3xf32>
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<100x3xf32>, %b: tensor<80x3xf32>) -> tensor<100x80xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x3xf32>) -> tensor<100x1x3xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<100x1x3xf32>) -> tensor<100x80x3xf32>
  %2 = stablehlo.reshape %b : (tensor<80x3xf32>) -> tensor<1x80x3xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x80x3xf32>) -> tensor<100x80x3xf32>
  %4 = stablehlo.subtract %1, %3 : tensor<100x80x3xf32>
  %5 = stablehlo.multiply %4, %4 : tensor<100x80x3xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x3xf32>, tensor<f32>) -> tensor<100x80xf32>
  return %6 : tensor<100x80xf32>
}
