// RUN: %exla-opt %s --passes=convolution-layout | filecheck %s
// RUN: %exla-opt %s --passes=convolution-layout --target=gpu | filecheck %s --check-prefix=GPU

// The gradient of a transposed convolution of stride 2 by its kernel of 4 x 4: of 16 images of 8 x 8 with 16 features, and of its result of
// 16 x 16 with 12. XLA would exchange the two and reverse a window of 16 x 16; exchanged here, the result of 4 x 4 is reversed.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<16x8x8x16xf32>, %[[DY:[^:]*]]: tensor<16x16x16x12xf32>
// CHECK: %[[IMAGES:.*]] = stablehlo.transpose %[[DY]], dims = [3, 1, 2, 0] : (tensor<16x16x16x12xf32>) -> tensor<12x16x16x16xf32>
// CHECK: %[[KERNEL:.*]] = stablehlo.transpose %[[X]], dims = [1, 2, 0, 3] : (tensor<16x8x8x16xf32>) -> tensor<8x8x16x16xf32>
// CHECK: %[[MADE:.*]] = stablehlo.convolution(%[[IMAGES]], %[[KERNEL]]) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
// CHECK-SAME: pad = {{\[\[}}1, 1], [1, 1]]
// CHECK-SAME: rhs_dilate = [2, 2]
// CHECK-SAME: -> tensor<12x4x4x16xf32>
// CHECK: %[[REVERSED:.*]] = stablehlo.reverse %[[MADE]], dims = [1, 2] : tensor<12x4x4x16xf32>
// CHECK: stablehlo.transpose %[[REVERSED]], dims = [1, 2, 3, 0] : (tensor<12x4x4x16xf32>) -> tensor<4x4x16x12xf32>

// GPU: lhs_dilate = [2, 2]
// GPU-NOT: stablehlo.reverse

func.func @main(%x: tensor<16x8x8x16xf32>, %dy: tensor<16x16x16x12xf32>) -> tensor<4x4x16x12xf32> {
  %0 = stablehlo.convolution(%x, %dy) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f],
    window = {stride = [1, 1], pad = [[2, 2], [2, 2]], lhs_dilate = [2, 2], rhs_dilate = [1, 1]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<16x8x8x16xf32>, tensor<16x16x16x12xf32>) -> tensor<4x4x16x12xf32>
  return %0 : tensor<4x4x16x12xf32>
}
