// RUN: %exla-opt %s --passes=reshape-sinker | filecheck %s

// A dense layer as TensorFlow writes it: rows of all batches merged for the dot, and split again behind it.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x5x4xf32>, %[[W:[^:]*]]: tensor<3x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[X]], %[[W]], contracting_dims = [2] x [1] : {{.*}} -> tensor<2x5x3xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[DOT]] : (tensor<2x5x3xf32>) -> tensor<10x3xf32>
// CHECK: return %[[ROWS]]

func.func @main(%x: tensor<2x5x4xf32>, %w: tensor<3x4xf32>) -> tensor<10x3xf32> {
  %0 = stablehlo.reshape %x : (tensor<2x5x4xf32>) -> tensor<10x4xf32>
  %1 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<10x4xf32>, tensor<4x3xf32>) -> tensor<10x3xf32>
  return %2 : tensor<10x3xf32>
}
