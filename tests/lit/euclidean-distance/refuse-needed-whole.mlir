// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB 2>&1 | filecheck %s

// The difference is needed in full elsewhere: it would be made all the same.

// CHECK: refuse-needed-whole.mlir:{{.*}}: remark: 100x80x40xf32 (1.28MB) not multiplied out: stablehlo.sort needs a tensor of its full shape as well (stablehlo.sort at {{.*}}) [euclidean-distance, EX402]
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<100x40xf32>, %b: tensor<80x40xf32>) -> (tensor<100x80xf32>, tensor<100x80x1xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xf32>) -> tensor<100x80x40xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xf32>) -> tensor<100x80x40xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xf32>
  %3 = stablehlo.multiply %2, %2 : tensor<100x80x40xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<100x80xf32>
  %5 = "stablehlo.sort"(%2) <{dimension = 2 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<100x80x40xf32>) -> tensor<100x80x40xf32>
  %6 = stablehlo.slice %5 [0:100, 0:80, 0:1] : (tensor<100x80x40xf32>) -> tensor<100x80x1xf32>
  return %4, %6 : tensor<100x80xf32>, tensor<100x80x1xf32>
}
