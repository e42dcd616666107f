// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB | filecheck %s

// The gradients of a sum of squared differences by both sides: row sums and dots, and nothing of three dimensions.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<100x40xf32>, %[[B:[^:]*]]: tensor<80x40xf32>, %[[W:[^:]*]]: tensor<100x80xf32>
// CHECK-NOT: 100x80x40x
// CHECK: %[[A_MOVED:.*]] = stablehlo.subtract %[[A]], %{{.*}} : tensor<100x40xf32>
// CHECK: %[[ROW_SUMS:.*]] = stablehlo.reduce(%[[W]] init: {{.*}}across dimensions = [1]
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[ROW_SUMS]], dims = [0] : {{.*}} -> tensor<100x40xf32>
// CHECK: stablehlo.multiply {{.*}}%[[SPREAD]]{{.*}} : tensor<100x40xf32>
// CHECK: %[[B_MOVED:.*]] = stablehlo.subtract %[[B]], %{{.*}} : tensor<80x40xf32>
// CHECK: stablehlo.dot_general %[[W]], %[[B_MOVED]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<100x40xf32>
// CHECK: stablehlo.dot_general %[[W]], %[[A_MOVED]], contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<80x40xf32>
// CHECK: stablehlo.reduce(%[[W]] init: {{.*}}across dimensions = [0]
// CHECK-NOT: 100x80x40x

func.func @main(%a: tensor<100x40xf32>, %b: tensor<80x40xf32>, %w: tensor<100x80xf32>) -> (tensor<100x40xf32>, tensor<80x40xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %two = stablehlo.constant dense<2.0> : tensor<100x80x40xf32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xf32>) -> tensor<100x80x40xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xf32>) -> tensor<100x80x40xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xf32>
  %3 = stablehlo.multiply %two, %2 : tensor<100x80x40xf32>
  %4 = stablehlo.broadcast_in_dim %w, dims = [0, 1] : (tensor<100x80xf32>) -> tensor<100x80x40xf32>
  %5 = stablehlo.multiply %4, %3 : tensor<100x80x40xf32>
  %6 = stablehlo.negate %5 : tensor<100x80x40xf32>
  %7 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<100x40xf32>
  %8 = stablehlo.reduce(%6 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<80x40xf32>
  return %7, %8 : tensor<100x40xf32>, tensor<80x40xf32>
}
