// RUN: %exla-opt %s --passes=reshape-sinker --size-threshold=4KB | filecheck %s
// RUN: %exla-opt %s --passes=reshape-sinker --size-threshold=1MB | filecheck %s --check-prefix=SMALL

// The gradient of weights is below the threshold, but what it sums may be split: the product is made as it is wanted. A
// product of two plain matrices stays, and so does one of small ones.

// CHECK: %[[WEIGHTS:.*]] = stablehlo.dot_general %arg1, %arg0, contracting_dims = [0] x [0] : {{.*}} -> tensor<3x5xf32>
// CHECK: %[[PLAIN:.*]] = stablehlo.dot_general %arg2, %arg1, contracting_dims = [1] x [0]
// CHECK: %[[MOVED:.*]] = stablehlo.transpose %[[PLAIN]]
// CHECK: return %[[WEIGHTS]], %[[MOVED]]

// SMALL: %[[PRODUCT:.*]] = stablehlo.dot_general %arg0, %arg1
// SMALL: stablehlo.transpose %[[PRODUCT]]

func.func @main(%x: tensor<128x5xf32>, %g: tensor<128x3xf32>, %y: tensor<5x128xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>) {
  %0 = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : (tensor<128x5xf32>, tensor<128x3xf32>) -> tensor<5x3xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %2 = stablehlo.dot_general %y, %g, contracting_dims = [1] x [0] : (tensor<5x128xf32>, tensor<128x3xf32>) -> tensor<5x3xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
  return %1, %3 : tensor<3x5xf32>, tensor<3x5xf32>
}
