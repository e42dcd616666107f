// RUN: %exla-opt %s --passes=convolution-layout | filecheck %s

// Two groups of features are two convolutions; groups of one input feature are a sum of products.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: stablehlo.while
// CHECK: %[[ONE:.*]] = stablehlo.convolution(%{{.*}}, %{{.*}}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = {{\[\[}}1, 1], [1, 1]]}
// CHECK-SAME: (tensor<2x8x6x8xf32>, tensor<3x3x8x8xf32>) -> tensor<2x8x6x8xf32>
// CHECK: %[[TWO:.*]] = stablehlo.convolution(%{{.*}}, %{{.*}}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
// CHECK: %[[BOTH:.*]] = stablehlo.concatenate %[[ONE]], %[[TWO]], dim = 3
// CHECK-NOT: stablehlo.convolution
// CHECK: stablehlo.pad
// CHECK-COUNT-9: stablehlo.multiply
// CHECK-NOT: stablehlo.convolution

func.func @main(%x: tensor<2x8x6x16xf32>, %k: tensor<3x3x8x16xf32>, %l: tensor<3x3x1x16xf32>) -> tensor<2x8x6x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<2x8x6x16xf32>
    cond {
      %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.convolution(%y, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
        : (tensor<2x8x6x16xf32>, tensor<3x3x8x16xf32>) -> tensor<2x8x6x16xf32>
      %w = stablehlo.convolution(%z, %l) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
        : (tensor<2x8x6x16xf32>, tensor<3x3x1x16xf32>) -> tensor<2x8x6x16xf32>
      stablehlo.return %next, %w : tensor<i32>, tensor<2x8x6x16xf32>
    }
  return %r#1 : tensor<2x8x6x16xf32>
}
