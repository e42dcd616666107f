// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB | filecheck %s

// sum_k (a[i,k] - b[j,k])^2 about the middle of b: the median of every second of its points.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<100x40xf32>, %[[B:[^:]*]]: tensor<80x40xf32>
// CHECK-NOT: 100x80x40x
// CHECK: %[[SAMPLE:.*]] = stablehlo.slice %[[B]] [0:80:2, 0:40] : (tensor<80x40xf32>) -> tensor<40x40xf32>
// CHECK: %[[TURNED:.*]] = stablehlo.transpose %[[SAMPLE]], dims = [1, 0]
// CHECK: %[[SORTED:.*]] = "stablehlo.sort"(%{{.*}}) <{dimension = 1 : i64
// CHECK: TOTALORDER
// CHECK: %[[COLUMN:.*]] = stablehlo.slice %[[SORTED]] [0:40, 20:21]
// CHECK: %[[MEDIAN:.*]] = stablehlo.reshape %[[COLUMN]]
// CHECK: %[[FINITE:.*]] = stablehlo.is_finite %[[MEDIAN]]
// CHECK: %[[MIDDLE:.*]] = stablehlo.select %[[FINITE]], %[[MEDIAN]]
// CHECK: %[[MIDDLES:.*]] = stablehlo.broadcast_in_dim %[[MIDDLE]], dims = [1] : {{.*}} -> tensor<100x40xf32>
// CHECK: %[[A_MOVED:.*]] = stablehlo.subtract %[[A]], %[[MIDDLES]] : tensor<100x40xf32>
// CHECK: %[[A_SQUARES:.*]] = stablehlo.multiply %[[A_MOVED]], %[[A_MOVED]] : tensor<100x40xf32>
// CHECK: %[[A_NORMS:.*]] = stablehlo.reduce(%[[A_SQUARES]] init: {{.*}}across dimensions = [1]
// CHECK: %[[B_MOVED:.*]] = stablehlo.subtract %[[B]], %{{.*}} : tensor<80x40xf32>
// CHECK: %[[NORMS:.*]] = stablehlo.add %{{.*}}, %{{.*}} : tensor<100x80xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_MOVED]], %[[B_MOVED]], contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<100x80xf32>
// CHECK: %[[TWICE:.*]] = stablehlo.multiply %[[DOT]], %{{.*}} : tensor<100x80xf32>
// CHECK: %[[SQUARED:.*]] = stablehlo.add %[[NORMS]], %[[TWICE]] : tensor<100x80xf32>
// CHECK: %[[POSITIVE:.*]] = stablehlo.maximum %[[SQUARED]], %{{.*}} : tensor<100x80xf32>
// CHECK: %[[WHERE:.*]] = stablehlo.is_finite %[[NORMS]]
// CHECK: %[[CHOSEN:.*]] = stablehlo.select %[[WHERE]], %[[POSITIVE]], %[[NORMS]]
// CHECK: return %[[CHOSEN]]

func.func @main(%a: tensor<100x40xf32>, %b: tensor<80x40xf32>) -> tensor<100x80xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xf32>) -> tensor<100x1x40xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<100x1x40xf32>) -> tensor<100x80x40xf32>
  %2 = stablehlo.reshape %b : (tensor<80x40xf32>) -> tensor<1x80x40xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x80x40xf32>) -> tensor<100x80x40xf32>
  %4 = stablehlo.subtract %1, %3 : tensor<100x80x40xf32>
  %5 = stablehlo.multiply %4, %4 : tensor<100x80x40xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xf32>, tensor<f32>) -> tensor<100x80xf32>
  return %6 : tensor<100x80xf32>
}
