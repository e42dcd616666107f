// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A padded convolution with overlapping windows: two rows of the result read four rows of the image. What they read
// is moved inside the image at its borders and padded, so that every tile has one shape.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[IMAGE:[^:]*]]: tensor<1x64x64x4xf32>, %[[KERNEL:[^:]*]]: tensor<3x3x4x32xf32>
// CHECK-DAG: %[[LAST:.*]] = stablehlo.constant dense<60> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[FILL:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}})
// CHECK: %[[ROW:.*]] = stablehlo.multiply %[[I]],
// CHECK: %[[ABOVE:.*]] = stablehlo.subtract %[[ROW]],
// CHECK: %[[FIRST:.*]] = stablehlo.clamp %[[ZERO]], %[[ABOVE]], %[[LAST]] : tensor<i32>
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %[[IMAGE]], %[[ZERO]], %[[FIRST]], {{.*}} sizes = [1, 4, 64, 4]
// CHECK: %[[MOVED:.*]] = stablehlo.subtract %[[ABOVE]], %[[FIRST]] : tensor<i32>
// CHECK: %[[PLACE:.*]] = stablehlo.add %[[MOVED]],
// CHECK: %[[PADDED:.*]] = stablehlo.pad %[[ROWS]], %[[FILL]], low = [0, 1, 0, 0], high = [0, 1, 0, 0]
// CHECK: %[[SPANNED:.*]] = stablehlo.dynamic_slice %[[PADDED]], %[[ZERO]], %[[PLACE]], {{.*}} sizes = [1, 4, 64, 4]
// CHECK: stablehlo.convolution(%[[SPANNED]], %[[KERNEL]]) {{.*}}pad = {{\[\[}}0, 0], [1, 1]]{{.*}} -> tensor<1x2x64x32xf32>
// CHECK: %[[PART:.*]] = stablehlo.reduce
// CHECK: stablehlo.add %[[SUM]], %[[PART]] : tensor<32xf32>
// CHECK: return %[[LOOP]]#1

func.func @main(%image: tensor<1x64x64x4xf32>, %kernel: tensor<3x3x4x32xf32>) -> tensor<32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.convolution(%image, %kernel) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x64x4xf32>, tensor<3x3x4x32xf32>) -> tensor<1x64x64x32xf32>
  %1 = stablehlo.tanh %0 : tensor<1x64x64x32xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<1x64x64x32xf32>, tensor<f32>) -> tensor<32xf32>
  return %2 : tensor<32xf32>
}
