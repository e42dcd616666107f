// RUN: %exla-opt %s --passes=reshape-sinker --size-threshold=1000 | filecheck %s

// One number decides for a whole tensor, or bounds it: that it was reshaped says nothing about the others.

// CHECK: %[[GO:.*]] = stablehlo.reshape %{{.*}} : (tensor<1xi1>) -> tensor<i1>
// CHECK: stablehlo.select %[[GO]], %{{.*}} : tensor<i1>, tensor<40x50xf32>
// CHECK: %[[MOST:.*]] = stablehlo.reshape %{{.*}} : (tensor<1xf32>) -> tensor<f32>
// CHECK: stablehlo.clamp %{{.*}}, %{{.*}}, %[[MOST]] : (tensor<f32>, tensor<40x50xf32>, tensor<f32>) -> tensor<40x50xf32>

func.func @main(%go: tensor<1xi1>, %a: tensor<f32>, %b: tensor<40xf32>, %most: tensor<1xf32>) -> (tensor<40x50xf32>, tensor<40x50xf32>) {
  %0 = stablehlo.reshape %go : (tensor<1xi1>) -> tensor<i1>
  %1 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<40x50xf32>
  %2 = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<40xf32>) -> tensor<40x50xf32>
  %3 = stablehlo.select %0, %1, %2 : tensor<i1>, tensor<40x50xf32>
  %4 = stablehlo.reshape %most : (tensor<1xf32>) -> tensor<f32>
  %5 = stablehlo.clamp %a, %2, %4 : (tensor<f32>, tensor<40x50xf32>, tensor<f32>) -> tensor<40x50xf32>
  return %3, %5 : tensor<40x50xf32>, tensor<40x50xf32>
}
