// RUN: %exla-opt %s --passes=rce | filecheck %s

// What moves nothing goes; two movements in a row are one.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x6xf32>, %[[B:[^:]*]]: tensor<4x6xbf16>
// CHECK-NOT: stablehlo.slice
// CHECK-NOT: stablehlo.pad
// CHECK-DAG: %[[RESHAPED:.*]] = stablehlo.reshape %[[X]] : (tensor<4x6xf32>) -> tensor<24xf32>
// CHECK-DAG: %[[TURNED:.*]] = stablehlo.transpose %[[X]], dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
// CHECK-DAG: %[[REPEATED:.*]] = stablehlo.broadcast_in_dim %[[X]], dims = [0, 2] : (tensor<4x6xf32>) -> tensor<4x5x6xf32>
// CHECK-DAG: %[[PART:.*]] = stablehlo.slice %[[X]] [1:4:2, 2:5] : (tensor<4x6xf32>) -> tensor<2x3xf32>
// CHECK: return %[[RESHAPED]], %[[TURNED]], %[[REPEATED]], %[[PART]], %[[B]], %[[X]]

func.func @main(%x: tensor<4x6xf32>, %b: tensor<4x6xbf16>) -> (tensor<24xf32>, tensor<6x4xf32>, tensor<4x5x6xf32>, tensor<2x3xf32>, tensor<4x6xbf16>, tensor<4x6xf32>) {
  %p = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<2x2x6xf32>
  %1 = stablehlo.reshape %0 : (tensor<2x2x6xf32>) -> tensor<24xf32>
  %2 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<1x4x6xf32>
  %3 = stablehlo.transpose %2, dims = [2, 0, 1] : (tensor<1x4x6xf32>) -> tensor<6x1x4xf32>
  %4 = stablehlo.transpose %3, dims = [0, 2, 1] : (tensor<6x1x4xf32>) -> tensor<6x4x1xf32>
  %5 = stablehlo.reshape %4 : (tensor<6x4x1xf32>) -> tensor<6x4xf32>
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %6 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<4x1x6xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2] : (tensor<4x1x6xf32>) -> tensor<4x5x6xf32>
  %8 = stablehlo.slice %x [1:4, 0:6:2] : (tensor<4x6xf32>) -> tensor<3x3xf32>
  %9 = stablehlo.slice %x [1:4, 2:6] : (tensor<4x6xf32>) -> tensor<3x4xf32>
  %10 = stablehlo.slice %9 [0:3:2, 0:3] : (tensor<3x4xf32>) -> tensor<2x3xf32>
  %11 = stablehlo.convert %b : (tensor<4x6xbf16>) -> tensor<4x6xf32>
  %12 = stablehlo.convert %11 : (tensor<4x6xf32>) -> tensor<4x6xbf16>
  %13 = stablehlo.slice %x [0:4, 0:6] : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %14 = stablehlo.pad %13, %p, low = [0, 0], high = [0, 0], interior = [0, 0] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
  %15 = stablehlo.concatenate %14, dim = 0 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %16 = stablehlo.reverse %15, dims = [1] : tensor<4x6xf32>
  %17 = stablehlo.reverse %16, dims = [1] : tensor<4x6xf32>
  %18 = stablehlo.convert %17 : tensor<4x6xf32>
  %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1] : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %1, %t, %7, %10, %12, %19 : tensor<24xf32>, tensor<6x4xf32>, tensor<4x5x6xf32>, tensor<2x3xf32>, tensor<4x6xbf16>, tensor<4x6xf32>
}
