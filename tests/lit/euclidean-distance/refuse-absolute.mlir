// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB 2>&1 | filecheck %s

// The distance of city blocks is not multiplied out; the splitter cuts it.

// CHECK: refuse-absolute.mlir:{{.*}}: remark: 100x80x40xf32 (1.28MB) not multiplied out: abs is not multiplied out [euclidean-distance, EX403]
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<100x40xf32>, %b: tensor<80x40xf32>) -> tensor<100x80xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xf32>) -> tensor<100x80x40xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xf32>) -> tensor<100x80x40xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xf32>
  %3 = stablehlo.abs %2 : tensor<100x80x40xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<100x80xf32>
  return %4 : tensor<100x80xf32>
}
