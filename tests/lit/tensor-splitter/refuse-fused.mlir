// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// XLA computes this on the fly, in the reduce over eight elements: there is nothing to save.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<128xf32>, %[[B:[^:]*]]: tensor<128x8xf32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[A]], dims = [0] : {{.*}} -> tensor<128x128x8xf32>
// CHECK: %[[SPREAD2:.*]] = stablehlo.broadcast_in_dim %[[B]], dims = [1, 2] : {{.*}} -> tensor<128x128x8xf32>
// CHECK: %[[SHIFTED:.*]] = stablehlo.subtract %[[SPREAD]], %[[SPREAD2]] : tensor<128x128x8xf32>
// CHECK: %[[REDUCE:.*]] = stablehlo.reduce(%[[SHIFTED]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [2] : {{.*}} -> tensor<128x128xf32>
// CHECK: return %[[REDUCE]]

func.func @main(%a: tensor<128xf32>, %b: tensor<128x8xf32>) -> tensor<128x128xf32> {
  %0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<128xf32>) -> tensor<128x128x8xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<128x8xf32>) -> tensor<128x128x8xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<128x128x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<128x128x8xf32>, tensor<f32>) -> tensor<128x128xf32>
  return %3 : tensor<128x128xf32>
}
