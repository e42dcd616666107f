// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=10KB | filecheck %s

// Weights of unknown sign: where none is negative the sum is at least 0, where none is positive at most 0.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<40x64xf32>, %[[B:[^:]*]]: tensor<50x64xf32>, %[[W:[^:]*]]: tensor<64xf32>
// CHECK-NOT: 40x50x64
// CHECK-DAG: %[[MOST:.*]] = stablehlo.constant dense<0x7F800000> : tensor<40x50xf32>
// CHECK-DAG: %[[LEAST:.*]] = stablehlo.constant dense<0xFF800000> : tensor<40x50xf32>
// CHECK: "stablehlo.sort"
// CHECK: %[[WHOLE:.*]] = stablehlo.add {{.*}} : tensor<40x50xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general {{.*}}precision = [HIGHEST, HIGHEST]{{.*}} -> tensor<40x50xf32>
// CHECK: %[[BELOW:.*]] = stablehlo.minimum %[[W]], %{{.*}} : tensor<64xf32>
// CHECK: %[[NEGATIVE:.*]] = stablehlo.reduce(%[[BELOW]]
// CHECK: %[[NONE:.*]] = stablehlo.compare GE, %[[NEGATIVE]],
// CHECK: %[[POSITIVE:.*]] = stablehlo.broadcast_in_dim %[[NONE]], dims = [] : (tensor<i1>) -> tensor<40x50xi1>
// CHECK: stablehlo.maximum %[[W]], %{{.*}} : tensor<64xf32>
// CHECK: %[[FROM:.*]] = stablehlo.select %[[POSITIVE]], %{{.*}}, %[[LEAST]]
// CHECK: %[[TO:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %[[MOST]]
// CHECK: %[[BOUNDED:.*]] = stablehlo.clamp %[[FROM]], %{{.*}}, %[[TO]] : tensor<40x50xf32>
// CHECK: %[[FINITE:.*]] = stablehlo.is_finite %[[WHOLE]]
// CHECK: stablehlo.select %[[FINITE]], %[[BOUNDED]], %[[WHOLE]]

func.func @main(%a: tensor<40x64xf32>, %b: tensor<50x64xf32>, %w: tensor<64xf32>) -> tensor<40x50xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<40x64xf32>) -> tensor<40x50x64xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<50x64xf32>) -> tensor<40x50x64xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<40x50x64xf32>
  %3 = stablehlo.multiply %2, %2 : tensor<40x50x64xf32>
  %4 = stablehlo.broadcast_in_dim %w, dims = [2] : (tensor<64xf32>) -> tensor<40x50x64xf32>
  %5 = stablehlo.multiply %3, %4 : tensor<40x50x64xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<40x50x64xf32>, tensor<f32>) -> tensor<40x50xf32>
  return %6 : tensor<40x50xf32>
}
