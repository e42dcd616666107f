// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB | filecheck %s

// Of a few numbers for each weight, the sum of the weights is one more column of their dot, in float64.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<100x3xf32>, %[[B:[^:]*]]: tensor<3x80xf32>, %[[W:[^:]*]]: tensor<100x80xf32>
// CHECK-NOT: 100x80x3x
// CHECK-NOT: stablehlo.reduce
// CHECK: %[[ONES:.*]] = stablehlo.constant dense<1.000000e+00> : tensor<1x80xf64>
// CHECK-NOT: stablehlo.reduce
// CHECK: %[[WIDE:.*]] = stablehlo.convert %[[W]] : {{.*}} -> tensor<100x80xf64>
// CHECK: %[[B_AND_ONES:.*]] = stablehlo.concatenate %{{.*}}, %[[ONES]], dim = 0 : {{.*}} -> tensor<4x80xf64>
// CHECK: %[[BOTH:.*]] = stablehlo.dot_general %[[WIDE]], %[[B_AND_ONES]], contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<100x4xf64>
// CHECK: stablehlo.slice %[[BOTH]] [0:100, 3:4]
// CHECK: stablehlo.slice %[[BOTH]] [0:100, 0:3]
// CHECK-NOT: stablehlo.reduce
// CHECK-NOT: 100x80x3x

func.func @main(%a: tensor<100x3xf32>, %b: tensor<3x80xf32>, %w: tensor<100x80xf32>) -> tensor<100x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x3xf32>) -> tensor<100x80x3xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [2, 1] : (tensor<3x80xf32>) -> tensor<100x80x3xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x3xf32>
  %3 = stablehlo.broadcast_in_dim %w, dims = [0, 1] : (tensor<100x80xf32>) -> tensor<100x80x3xf32>
  %4 = stablehlo.multiply %3, %2 : tensor<100x80x3xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<100x80x3xf32>, tensor<f32>) -> tensor<100x3xf32>
  return %5 : tensor<100x3xf32>
}
