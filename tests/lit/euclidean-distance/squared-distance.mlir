// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB | filecheck %s

// sum_k (a[i,k] - b[j,k])^2 about the mean of b; three numbers a pair are few, so it is done in f64.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<100x3xf32>, %[[B:[^:]*]]: tensor<80x3xf32>
// CHECK-NOT: 100x80x3x
// CHECK: %[[A_WIDE:.*]] = stablehlo.convert %[[A]] : {{.*}} -> tensor<100x3xf64>
// CHECK: %[[B_WIDE:.*]] = stablehlo.convert %[[B]] : {{.*}} -> tensor<80x3xf64>
// CHECK: %[[FINITE:.*]] = stablehlo.is_finite %[[B_WIDE]]
// CHECK: %[[KEPT:.*]] = stablehlo.select %[[FINITE]], %[[B_WIDE]]
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[KEPT]] init: {{.*}}across dimensions = [0]
// CHECK: %[[MEAN:.*]] = stablehlo.divide %[[SUM]], %{{.*}} : tensor<3xf64>
// CHECK: %[[MEANS:.*]] = stablehlo.broadcast_in_dim %[[MEAN]], dims = [1] : {{.*}} -> tensor<100x3xf64>
// CHECK: %[[A_MOVED:.*]] = stablehlo.subtract %[[A_WIDE]], %[[MEANS]] : tensor<100x3xf64>
// CHECK: %[[A_SQUARES:.*]] = stablehlo.multiply %[[A_MOVED]], %[[A_MOVED]] : tensor<100x3xf64>
// CHECK: %[[A_NORMS:.*]] = stablehlo.reduce(%[[A_SQUARES]] init: {{.*}}across dimensions = [1]
// CHECK: %[[B_MOVED:.*]] = stablehlo.subtract %[[B_WIDE]], %{{.*}} : tensor<80x3xf64>
// CHECK: %[[NORMS:.*]] = stablehlo.add %{{.*}}, %{{.*}} : tensor<100x80xf64>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_MOVED]], %[[B_MOVED]], contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<100x80xf64>
// CHECK: %[[TWICE:.*]] = stablehlo.multiply %[[DOT]], %{{.*}} : tensor<100x80xf64>
// CHECK: %[[SQUARED:.*]] = stablehlo.add %[[NORMS]], %[[TWICE]] : tensor<100x80xf64>
// CHECK: %[[POSITIVE:.*]] = stablehlo.maximum %[[SQUARED]], %{{.*}} : tensor<100x80xf64>
// CHECK: %[[WHERE:.*]] = stablehlo.is_finite %[[NORMS]]
// CHECK: %[[CHOSEN:.*]] = stablehlo.select %[[WHERE]], %[[POSITIVE]], %[[NORMS]]
// CHECK: %[[RESULT:.*]] = stablehlo.convert %[[CHOSEN]] : {{.*}} -> tensor<100x80xf32>
// CHECK: return %[[RESULT]]

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
