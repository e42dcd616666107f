// RUN: %exla-opt %s --passes=pointwise-convolutions | filecheck %s
// RUN: %exla-opt %s --passes=pointwise-convolutions --target=gpu | filecheck %s --check-prefix=GPU
// RUN: %exla-opt %s --passes=pointwise-convolutions --no-reassociate | filecheck %s --check-prefix=GPU

// A layer with a kernel of 1 x 1, its gradients by the kernel and by the image, and a convolution with neighbours.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x9x9x64xf32>, %[[K:[^:]*]]: tensor<1x1x64x96xf32>, %[[DY:[^:]*]]: tensor<4x5x5x96xf32>, %[[N:[^:]*]]: tensor<3x3x64x96xf32>

// With strides of 2.
// CHECK: %[[READ:.*]] = stablehlo.slice %[[X]] [0:4, 0:9:2, 0:9:2, 0:64]
// CHECK: %[[MATRIX:.*]] = stablehlo.reshape %[[K]] : (tensor<1x1x64x96xf32>) -> tensor<64x96xf32>
// CHECK: %[[Y:.*]] = stablehlo.dot_general %[[READ]], %[[MATRIX]], contracting_dims = [3] x [0] {{.*}} -> tensor<4x5x5x96xf32>

// CHECK: %[[READ:.*]] = stablehlo.slice %[[X]] [0:4, 0:9:2, 0:9:2, 0:64]
// CHECK: %[[DK:.*]] = stablehlo.dot_general %[[READ]], %[[DY]], contracting_dims = [0, 1, 2] x [0, 1, 2] {{.*}} -> tensor<64x96xf32>
// CHECK: %[[DK4:.*]] = stablehlo.reshape %[[DK]] : (tensor<64x96xf32>) -> tensor<1x1x64x96xf32>

// What no window reads is zero.
// CHECK: %[[MATRIX:.*]] = stablehlo.reshape %[[K]] : (tensor<1x1x64x96xf32>) -> tensor<64x96xf32>
// CHECK: %[[SMALL:.*]] = stablehlo.dot_general %[[DY]], %[[MATRIX]], contracting_dims = [3] x [1] {{.*}} -> tensor<4x5x5x64xf32>
// CHECK: %[[DX:.*]] = stablehlo.pad %[[SMALL]], %{{.*}}, low = [0, 0, 0, 0], high = [0, 0, 0, 0], interior = [0, 1, 1, 0]

// CHECK: %[[Z:.*]] = stablehlo.convolution(%[[X]], %[[N]])
// CHECK: return %[[Y]], %[[DK4]], %[[DX]], %[[Z]]

// GPU-COUNT-4: stablehlo.convolution
// GPU-NOT: stablehlo.dot_general

func.func @main(%x: tensor<4x9x9x64xf32>, %k: tensor<1x1x64x96xf32>, %dy: tensor<4x5x5x96xf32>, %n: tensor<3x3x64x96xf32>) -> (tensor<4x5x5x96xf32>, tensor<1x1x64x96xf32>, tensor<4x9x9x64xf32>, tensor<4x9x9x96xf32>) {
  %y = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x9x9x64xf32>, tensor<1x1x64x96xf32>) -> tensor<4x5x5x96xf32>
  %dk = stablehlo.convolution(%x, %dy) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {rhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x9x9x64xf32>, tensor<4x5x5x96xf32>) -> tensor<1x1x64x96xf32>
  %dx = stablehlo.convolution(%dy, %k) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {lhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x5x5x96xf32>, tensor<1x1x64x96xf32>) -> tensor<4x9x9x64xf32>
  %z = stablehlo.convolution(%x, %n) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x9x9x64xf32>, tensor<3x3x64x96xf32>) -> tensor<4x9x9x96xf32>
  return %y, %dk, %dx, %z : tensor<4x5x5x96xf32>, tensor<1x1x64x96xf32>, tensor<4x9x9x64xf32>, tensor<4x9x9x96xf32>
}
