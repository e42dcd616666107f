// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// For each of three batches (2 (Q K'))' V' / 4 with a transpose between: the factor 1/2 goes into the smallest tensor.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<3x50x4xf32>, %[[K:[^:]*]]: tensor<3x60x4xf32>, %[[V:[^:]*]]: tensor<3x50x5xf32>
// CHECK-NOT: x50x60xf32
// CHECK-NOT: x60x50xf32
// CHECK: %[[HALF:.*]] = stablehlo.constant dense<5.000000e-01> : tensor<[[SMALL:.*]]>
// CHECK-COUNT-1: stablehlo.multiply {{.*}}, %[[HALF]] : tensor<[[SMALL]]>
// CHECK-NOT: stablehlo.divide

func.func @main(%q: tensor<3x50x4xf32>, %k: tensor<3x60x4xf32>, %v: tensor<3x50x5xf32>) -> tensor<3x60x5xf32> {
  %two = stablehlo.constant dense<2.0> : tensor<3x50x60xf32>
  %four = stablehlo.constant dense<4.0> : tensor<f32>
  %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<3x50x4xf32>, tensor<3x60x4xf32>) -> tensor<3x50x60xf32>
  %1 = stablehlo.multiply %two, %0 : tensor<3x50x60xf32>
  %2 = stablehlo.transpose %1, dims = [0, 2, 1] : (tensor<3x50x60xf32>) -> tensor<3x60x50xf32>
  %3 = stablehlo.broadcast_in_dim %four, dims = [] : (tensor<f32>) -> tensor<3x60x50xf32>
  %4 = stablehlo.divide %2, %3 : tensor<3x60x50xf32>
  %5 = stablehlo.dot_general %4, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x60x50xf32>, tensor<3x50x5xf32>) -> tensor<3x60x5xf32>
  return %5 : tensor<3x60x5xf32>
}
