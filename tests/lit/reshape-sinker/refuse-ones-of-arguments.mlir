// RUN: %exla-opt %s --passes=reshape-sinker | filecheck %s

// A kernel of 1 x 1 loses its dimensions of size 1: behind the product, the result and all that is computed from it
// would have them. What is computed may have a reshape before it that this one would meet, so there it sinks.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x5x5x8xf32>, %[[K:[^:]*]]: tensor<1x1x8x16xf32>
// CHECK: %[[MATRIX:.*]] = stablehlo.reshape %[[K]] : (tensor<1x1x8x16xf32>) -> tensor<8x16xf32>
// CHECK: stablehlo.dot_general %[[X]], %[[MATRIX]]
// CHECK: %[[SINE:.*]] = stablehlo.sine %[[K]]
// CHECK: stablehlo.dot_general %[[X]], %[[SINE]], contracting_dims = [3] x [2] {{.*}} -> tensor<2x5x5x1x1x16xf32>

func.func @main(%x: tensor<2x5x5x8xf32>, %k: tensor<1x1x8x16xf32>) -> (tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>) {
  %matrix = stablehlo.reshape %k : (tensor<1x1x8x16xf32>) -> tensor<8x16xf32>
  %y = stablehlo.dot_general %x, %matrix, contracting_dims = [3] x [0] : (tensor<2x5x5x8xf32>, tensor<8x16xf32>) -> tensor<2x5x5x16xf32>
  %sine = stablehlo.sine %k : tensor<1x1x8x16xf32>
  %other = stablehlo.reshape %sine : (tensor<1x1x8x16xf32>) -> tensor<8x16xf32>
  %z = stablehlo.dot_general %x, %other, contracting_dims = [3] x [0] : (tensor<2x5x5x8xf32>, tensor<8x16xf32>) -> tensor<2x5x5x16xf32>
  return %y, %z : tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>
}
