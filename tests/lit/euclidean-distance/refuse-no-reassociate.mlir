// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB --no-reassociate 2>&1 | filecheck %s

// The sum would be taken in another order.

// CHECK: refuse-no-reassociate.mlir:{{.*}}: remark: 100x80x40xf32 (1.28MB) not multiplied out: --no-reassociate forbids summing in another order [euclidean-distance, EX310]
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<100x40xf32>, %b: tensor<80x40xf32>) -> tensor<100x80xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xf32>) -> tensor<100x80x40xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xf32>) -> tensor<100x80x40xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xf32>
  %3 = stablehlo.multiply %2, %2 : tensor<100x80x40xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<100x80xf32>
  return %4 : tensor<100x80xf32>
}
