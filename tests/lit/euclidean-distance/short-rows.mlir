// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=10KB | filecheck %s

// Points of two numbers: the two squares are added, as exact as before, and nothing has three dimensions.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<40x2xf32>, %[[B:[^:]*]]: tensor<50x2xf32>
// CHECK-NOT: 40x50x2
// CHECK: stablehlo.slice %[[A]] [0:40, 0:1]
// CHECK: stablehlo.slice %[[B]] [0:50, 0:1]
// CHECK: %[[D0:.*]] = stablehlo.subtract {{.*}} : tensor<40x50xf32>
// CHECK: %[[S0:.*]] = stablehlo.multiply %[[D0]], %[[D0]]
// CHECK: stablehlo.slice %[[A]] [0:40, 1:2]
// CHECK: stablehlo.slice %[[B]] [0:50, 1:2]
// CHECK: %[[D1:.*]] = stablehlo.subtract {{.*}} : tensor<40x50xf32>
// CHECK: %[[S1:.*]] = stablehlo.multiply %[[D1]], %[[D1]]
// CHECK: %[[SUM:.*]] = stablehlo.add %[[S0]], %[[S1]] : tensor<40x50xf32>
// CHECK-NEXT: return %[[SUM]]

func.func @main(%a: tensor<40x2xf32>, %b: tensor<50x2xf32>) -> tensor<40x50xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<40x2xf32>) -> tensor<40x50x2xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<50x2xf32>) -> tensor<40x50x2xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<40x50x2xf32>
  %3 = stablehlo.multiply %2, %2 : tensor<40x50x2xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<40x50x2xf32>, tensor<f32>) -> tensor<40x50xf32>
  return %4 : tensor<40x50xf32>
}
