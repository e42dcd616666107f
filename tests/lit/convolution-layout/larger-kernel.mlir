// RUN: %exla-opt %s --passes=convolution-layout | filecheck %s

// A kernel of 3 x 3 on images of 2 x 2: a product of matrices. All nine positions meet the image.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x2x2x16xf32>, %[[K:[^:]*]]: tensor<3x3x16x48xf32>
// CHECK: %[[PADDED:.*]] = stablehlo.pad %[[X]], %{{.*}}, low = [0, 1, 1, 0], high = [0, 1, 1, 0]
// CHECK-COUNT-9: stablehlo.slice %[[PADDED]]
// CHECK: %[[PATCHES:.*]] = stablehlo.concatenate {{.*}} -> tensor<4x2x2x144xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[PATCHES]] : (tensor<4x2x2x144xf32>) -> tensor<16x144xf32>
// CHECK: %[[COLUMNS:.*]] = stablehlo.reshape %[[K]] : (tensor<3x3x16x48xf32>) -> tensor<144x48xf32>
// CHECK: %[[PRODUCT:.*]] = stablehlo.dot_general %[[ROWS]], %[[COLUMNS]], contracting_dims = [1] x [0]
// CHECK: %[[Y:.*]] = stablehlo.reshape %[[PRODUCT]] : (tensor<16x48xf32>) -> tensor<4x2x2x48xf32>

// On an image of one pixel, only the middle of the kernel meets it.
// CHECK: %[[MIDDLE:.*]] = stablehlo.slice %{{.*}} [1:2, 1:2, 0:16, 0:48]
// CHECK-NOT: stablehlo.convolution

func.func @main(%x: tensor<4x2x2x16xf32>, %k: tensor<3x3x16x48xf32>, %pixel: tensor<4x1x1x16xf32>, %l: tensor<3x3x16x48xf32>) -> (tensor<4x2x2x48xf32>, tensor<4x1x1x48xf32>) {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x2x2x16xf32>, tensor<3x3x16x48xf32>) -> tensor<4x2x2x48xf32>
  %1 = stablehlo.convolution(%pixel, %l) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x1x1x16xf32>, tensor<3x3x16x48xf32>) -> tensor<4x1x1x48xf32>
  return %0, %1 : tensor<4x2x2x48xf32>, tensor<4x1x1x48xf32>
}
