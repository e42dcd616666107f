// RUN: %exla-opt %s --passes=convolution-layout | filecheck %s
// RUN: %exla-opt %s --passes=convolution-layout --target=gpu | filecheck %s --check-prefix=GPU

// The image and the result are turned; the kernel lies right already. The convolution before the loop stays: XLA turns it itself.
// On a GPU both stay.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: stablehlo.convolution{{.*}} dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1]
// CHECK: stablehlo.while
// CHECK: %[[IMAGE:.*]] = stablehlo.transpose %[[OLD:.*]], dims = [0, 2, 3, 1] : (tensor<2x5x8x6xf32>) -> tensor<2x8x6x5xf32>
// CHECK: %[[RESULT:.*]] = stablehlo.convolution(%[[IMAGE]], %{{.*}}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = {{\[\[}}1, 1], [2, 0]]}
// CHECK-SAME: (tensor<2x8x6x5xf32>, tensor<3x3x5x5xf32>) -> tensor<2x8x6x5xf32>
// CHECK: stablehlo.transpose %[[RESULT]], dims = [0, 3, 1, 2] : (tensor<2x8x6x5xf32>) -> tensor<2x5x8x6xf32>

// GPU-COUNT-2: dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1]
// GPU-NOT: stablehlo.transpose

func.func @main(%x: tensor<2x5x8x6xf32>, %k: tensor<3x3x5x5xf32>) -> tensor<2x5x8x6xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %first = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1],
    window = {pad = [[1, 1], [2, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x5x8x6xf32>, tensor<3x3x5x5xf32>) -> tensor<2x5x8x6xf32>
  %r:2 = stablehlo.while(%i = %zero, %y = %first) : tensor<i32>, tensor<2x5x8x6xf32>
    cond {
      %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.convolution(%y, %k) dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1],
        window = {pad = [[1, 1], [2, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<2x5x8x6xf32>, tensor<3x3x5x5xf32>) -> tensor<2x5x8x6xf32>
      stablehlo.return %next, %z : tensor<i32>, tensor<2x5x8x6xf32>
    }
  return %r#1 : tensor<2x5x8x6xf32>
}
