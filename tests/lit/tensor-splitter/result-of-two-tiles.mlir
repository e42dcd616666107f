// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=2048 --split-size=2048 --remarks=all 2>&1 | filecheck %s

// Two tiles are straight-line code that writes the result in two updates. What the first has written is no tensor to be
// split in its turn: its buffer is the result's, and a split would leave two updates again, and so on.

// CHECK-COUNT-2: stablehlo.dynamic_update_slice
// CHECK-NOT: stablehlo.dynamic_update_slice
// CHECK: result-of-two-tiles.mlir:14:8: remark: 37x17xf32 (2.52KB) split over dimension 1 (17): 2 tiles of
// CHECK-NOT: split over

func.func @main(%a: tensor<37x3x3xf32>, %b: tensor<3x17x3xf32>, %scale: tensor<f32>) -> (tensor<f32>, tensor<17x37xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [2, 1] x [2, 0] : (tensor<37x3x3xf32>, tensor<3x17x3xf32>) -> tensor<37x17xf32>
  %1 = stablehlo.reduce(%0 init: %lowest) applies stablehlo.maximum across dimensions = [0] : (tensor<37x17xf32>, tensor<f32>) -> tensor<17xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<17xf32>) -> tensor<37x17xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<37x17xf32>
  %4 = stablehlo.exponential %3 : tensor<37x17xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<37x17xf32>, tensor<f32>) -> tensor<17xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<17xf32>) -> tensor<37x17xf32>
  %7 = stablehlo.divide %4, %6 : tensor<37x17xf32>
  %8 = stablehlo.broadcast_in_dim %scale, dims = [] : (tensor<f32>) -> tensor<37x17xf32>
  %9 = stablehlo.multiply %8, %0 : tensor<37x17xf32>
  %10 = stablehlo.transpose %9, dims = [1, 0] : (tensor<37x17xf32>) -> tensor<17x37xf32>
  %11 = stablehlo.reduce(%7 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<37x17xf32>, tensor<f32>) -> tensor<f32>
  return %11, %10 : tensor<f32>, tensor<17x37xf32>
}
