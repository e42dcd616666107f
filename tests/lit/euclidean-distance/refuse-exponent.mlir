// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB 2>&1 | filecheck %s

// A third power is no square.

// CHECK: refuse-exponent.mlir:{{.*}}: remark: 100x80x40xf32 (1.28MB) not multiplied out: its exponent is not 2 [euclidean-distance, EX403]
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<100x40xf32>, %b: tensor<80x40xf32>) -> tensor<100x80xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xf32>) -> tensor<100x80x40xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xf32>) -> tensor<100x80x40xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xf32>
  %three = stablehlo.constant dense<3.0> : tensor<100x80x40xf32>
  %3 = stablehlo.power %2, %three : tensor<100x80x40xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<100x80xf32>
  return %4 : tensor<100x80xf32>
}
