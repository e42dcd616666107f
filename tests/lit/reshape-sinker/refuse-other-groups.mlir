// RUN: %exla-opt %s --passes=reshape-sinker | filecheck %s

// What is contracted, summed or batched is merged with what is not; or somebody else reads the reshape.

// CHECK: stablehlo.reshape {{.*}} -> tensor<8x5xf32>
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.reshape {{.*}} -> tensor<5x8xf32>
// CHECK: stablehlo.reduce
// CHECK: stablehlo.reshape {{.*}} -> tensor<10x4xf32>
// CHECK: stablehlo.dot_general

func.func @main(%x: tensor<2x5x4xf32>, %w: tensor<5x3xf32>, %v: tensor<4x3xf32>) -> (tensor<8x3xf32>, tensor<5xf32>, tensor<10x3xf32>, tensor<10x4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reshape %x : (tensor<2x5x4xf32>) -> tensor<8x5xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<8x5xf32>, tensor<5x3xf32>) -> tensor<8x3xf32>
  %2 = stablehlo.reshape %x : (tensor<2x5x4xf32>) -> tensor<5x8xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<5x8xf32>, tensor<f32>) -> tensor<5xf32>
  %4 = stablehlo.reshape %x : (tensor<2x5x4xf32>) -> tensor<10x4xf32>
  %5 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<10x4xf32>, tensor<4x3xf32>) -> tensor<10x3xf32>
  return %1, %3, %5, %4 : tensor<8x3xf32>, tensor<5xf32>, tensor<10x3xf32>, tensor<10x4xf32>
}
