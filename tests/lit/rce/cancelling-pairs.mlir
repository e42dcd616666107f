// RUN: %exla-opt %s --passes=rce | filecheck %s

// What one op does and the next takes back; transposes that a broadcast does on its own; numbers that a type holds anyway.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x3xf32>, %[[Y:[^:]*]]: tensor<4x3xi8>
// CHECK: %[[WIDE:.*]] = stablehlo.broadcast_in_dim %[[X]], dims = [2, 1] : (tensor<4x3xf32>) -> tensor<5x3x4xf32>
// CHECK: %[[TURNED:.*]] = stablehlo.reverse %[[X]], dims = [0]
// CHECK: %[[REAL:.*]] = stablehlo.convert %[[Y]] : (tensor<4x3xi8>) -> tensor<4x3xf64>
// CHECK: %[[COLUMN:.*]] = stablehlo.slice
// CHECK: %[[ANY:.*]] = stablehlo.reshape %[[COLUMN]] : (tensor<4x1xi1>) -> tensor<4xi1>
// CHECK: return %[[X]], %[[X]], %[[WIDE]], %[[WIDE]], %[[TURNED]], %[[REAL]], %[[ANY]]

func.func @main(%x: tensor<4x3xf32>, %y: tensor<4x3xi8>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<5x3x4xf32>, tensor<5x3x4xf32>, tensor<4x3xf32>, tensor<4x3xf64>, tensor<4xi1>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %no = stablehlo.constant dense<false> : tensor<i1>
  %0 = stablehlo.pad %x, %zero, low = [1, 2], high = [3, 0], interior = [0, 1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<8x7xf32>
  %1 = stablehlo.slice %0 [1:5, 2:7:2] : (tensor<8x7xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.pad %x, %zero, low = [1, 2], high = [3, 0], interior = [0, 0] : (tensor<4x3xf32>, tensor<f32>) -> tensor<8x5xf32>
  %3 = stablehlo.pad %2, %zero, low = [-1, -2], high = [-3, 0], interior = [0, 0] : (tensor<8x5xf32>, tensor<f32>) -> tensor<4x3xf32>
  %4 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [1, 2] : (tensor<3x4xf32>) -> tensor<5x3x4xf32>
  %6 = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<4x3xf32>) -> tensor<4x3x5xf32>
  %7 = stablehlo.transpose %6, dims = [2, 1, 0] : (tensor<4x3x5xf32>) -> tensor<5x3x4xf32>
  %8 = stablehlo.reverse %x, dims = [0, 1] : tensor<4x3xf32>
  %9 = stablehlo.reverse %8, dims = [1] : tensor<4x3xf32>
  %10 = stablehlo.convert %y : (tensor<4x3xi8>) -> tensor<4x3xi32>
  %11 = stablehlo.convert %10 : (tensor<4x3xi32>) -> tensor<4x3xf64>
  %12 = stablehlo.convert %y : (tensor<4x3xi8>) -> tensor<4x3xi1>
  %13 = stablehlo.slice %12 [0:4, 1:2] : (tensor<4x3xi1>) -> tensor<4x1xi1>
  %14 = stablehlo.reduce(%13 init: %no) applies stablehlo.or across dimensions = [1] : (tensor<4x1xi1>, tensor<i1>) -> tensor<4xi1>
  return %1, %3, %5, %7, %9, %11, %14 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<5x3x4xf32>, tensor<5x3x4xf32>, tensor<4x3xf32>, tensor<4x3xf64>, tensor<4xi1>
}
