// RUN: %exla-opt %s --passes=normalise | filecheck %s

// JAX writes the gradient of weights as the transpose of a product. The product with its operands swapped is what is read.

// CHECK-LABEL: func.func @main
// CHECK-NEXT:    %[[W:.+]] = stablehlo.dot_general %arg1, %arg0, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, DEFAULT] : (tensor<2x8x3xf32>, tensor<2x8x5xf32>) -> tensor<3x5xf32>
// CHECK-NEXT:    %[[B:.+]] = stablehlo.dot_general %arg1, %arg0, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x8x3xf32>, tensor<2x8x5xf32>) -> tensor<2x3x5xf32>
// CHECK-NEXT:    return %[[W]], %[[B]]
func.func @main(%x: tensor<2x8x5xf32>, %y: tensor<2x8x3xf32>) -> (tensor<3x5xf32>, tensor<2x3x5xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, HIGHEST] : (tensor<2x8x5xf32>, tensor<2x8x3xf32>) -> tensor<5x3xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %2 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x8x5xf32>, tensor<2x8x3xf32>) -> tensor<2x5x3xf32>
  %3 = stablehlo.transpose %2, dims = [0, 2, 1] : (tensor<2x5x3xf32>) -> tensor<2x3x5xf32>
  return %1, %3 : tensor<3x5xf32>, tensor<2x3x5xf32>
}
