// RUN: %exla-opt %s --passes=symmetric-products --size-threshold=200KB --split-size=100KB | filecheck %s

// Two sets of points, a weight of the rows alone, and a matrix that is read in another way as well.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-NOT: stablehlo.while

func.func @main(%x: tensor<600x14xf32>, %z: tensor<600x14xf32>, %v: tensor<600xf32>) -> (tensor<600xf32>, tensor<600xf32>, tensor<600xf32>, tensor<600xf32>) {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.dot_general %x, %z, contracting_dims = [1] x [1] : (tensor<600x14xf32>, tensor<600x14xf32>) -> tensor<600x600xf32>
  %1 = stablehlo.tanh %0 : tensor<600x600xf32>
  %two_sets = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<600x600xf32>, tensor<600xf32>) -> tensor<600xf32>

  %2 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<600x14xf32>, tensor<600x14xf32>) -> tensor<600x600xf32>
  %3 = stablehlo.cosine %2 : tensor<600x600xf32>
  %rows = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<600xf32>) -> tensor<600x600xf32>
  %4 = stablehlo.multiply %3, %rows : tensor<600x600xf32>
  %weighted = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<600x600xf32>, tensor<600xf32>) -> tensor<600xf32>

  %5 = stablehlo.dot_general %z, %z, contracting_dims = [1] x [1] : (tensor<600x14xf32>, tensor<600x14xf32>) -> tensor<600x600xf32>
  %6 = stablehlo.tanh %5 : tensor<600x600xf32>
  %product = stablehlo.dot_general %6, %v, contracting_dims = [1] x [0] : (tensor<600x600xf32>, tensor<600xf32>) -> tensor<600xf32>
  %largest = stablehlo.reduce(%6 init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<600x600xf32>, tensor<f32>) -> tensor<600xf32>
  return %two_sets, %weighted, %product, %largest : tensor<600xf32>, tensor<600xf32>, tensor<600xf32>, tensor<600xf32>
}
