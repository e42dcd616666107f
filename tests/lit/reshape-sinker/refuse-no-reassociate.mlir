// RUN: %exla-opt %s --passes=reshape-sinker --no-reassociate | filecheck %s

// A sum over a transposed tensor adds in another order than one over the tensor itself. A maximum has no order, and
// neither have integers.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<5x4x3xf32>, %[[N:[^:]*]]: tensor<5x4x3xi32>
// CHECK: %[[TURNED:.*]] = stablehlo.transpose %[[X]], dims = [2, 0, 1] : (tensor<5x4x3xf32>) -> tensor<3x5x4xf32>
// CHECK: stablehlo.reduce(%[[TURNED]] init: %{{.*}}) applies stablehlo.add across dimensions = [0, 1]
// CHECK: stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.maximum across dimensions = [0, 2]
// CHECK: stablehlo.reduce(%[[N]] init: %{{.*}}) applies stablehlo.add across dimensions = [0, 2]

func.func @main(%x: tensor<5x4x3xf32>, %n: tensor<5x4x3xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<5x4x3xf32>) -> tensor<3x5x4xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5x4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<5x4x3xf32>) -> tensor<3x5x4xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<3x5x4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = stablehlo.transpose %n, dims = [2, 0, 1] : (tensor<5x4x3xi32>) -> tensor<3x5x4xi32>
  %5 = stablehlo.reduce(%4 init: %none) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5x4xi32>, tensor<i32>) -> tensor<4xi32>
  return %1, %3, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xi32>
}
