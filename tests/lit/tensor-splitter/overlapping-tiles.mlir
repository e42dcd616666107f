// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=64KB | filecheck %s

// Two convolutions in one loop, with tiles that overlap: 32 rows of the second read 34 rows of the first, which read 36
// of the image. The rows beyond the image's ends, where tanh(0 + 1) is no padding, are replaced before they are read.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[IMAGE:[^:]*]]: tensor<1x128x16x4xf32>, %[[FIRST:[^:]*]]: tensor<3x3x4x16xf32>, %[[SECOND:[^:]*]]: tensor<3x3x16x16xf32>
// CHECK-DAG: %[[BELOW:.*]] = stablehlo.constant dense<-1> : tensor<34xi32>
// CHECK-DAG: %[[ABOVE:.*]] = stablehlo.constant dense<128> : tensor<34xi32>
// CHECK-DAG: %[[BEFORE:.*]] = stablehlo.constant dense<-1> : tensor<i32>
// CHECK-DAG: %[[ROWS:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK-DAG: %[[FILL:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}})
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]]
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[ROWS]] : tensor<i32>
// CHECK: stablehlo.dynamic_slice %[[IMAGE]], {{.*}} sizes = [1, 36, 16, 4]
// CHECK: %[[PART:.*]] = stablehlo.select {{.*}} : tensor<1x36x16x4xi1>
// CHECK: %[[LONGER:.*]] = stablehlo.convolution(%[[PART]], %[[FIRST]]) {{.*}}pad = {{\[\[}}0, 0], [1, 1]]{{.*}} -> tensor<1x34x16x16xf32>
// CHECK: stablehlo.add %[[LONGER]],
// CHECK: %[[MADE:.*]] = stablehlo.tanh {{.*}} : tensor<1x34x16x16xf32>
// CHECK: %[[FROM:.*]] = stablehlo.add %[[START]], %[[BEFORE]] : tensor<i32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[FROM]], dims = [] : (tensor<i32>) -> tensor<34xi32>
// CHECK: %[[ROW:.*]] = stablehlo.add {{.*}}%[[SPREAD]] : tensor<34xi32>
// CHECK-DAG: %[[UNDER:.*]] = stablehlo.compare LT, %[[ROW]], %[[ABOVE]]
// CHECK-DAG: %[[OVER:.*]] = stablehlo.compare LT, %[[BELOW]], %[[ROW]]
// CHECK: %[[INSIDE:.*]] = stablehlo.and %[[UNDER]], %[[OVER]] : tensor<34xi1>
// CHECK: %[[MASK:.*]] = stablehlo.broadcast_in_dim %[[INSIDE]], dims = [1]
// CHECK: %[[PADDING:.*]] = stablehlo.broadcast_in_dim %[[FILL]]
// CHECK: %[[READ:.*]] = stablehlo.select %[[MASK]], %[[MADE]], %[[PADDING]]
// CHECK: stablehlo.convolution(%[[READ]], %[[SECOND]]) {{.*}}pad = {{\[\[}}0, 0], [1, 1]]{{.*}} -> tensor<1x32x16x16xf32>
// CHECK: %[[TILE:.*]] = stablehlo.reduce
// CHECK: stablehlo.add %[[SUM]], %[[TILE]] : tensor<16xf32>
// CHECK: return %[[LOOP]]#1

func.func @main(%image: tensor<1x128x16x4xf32>, %first: tensor<3x3x4x16xf32>, %second: tensor<3x3x16x16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<1x128x16x16xf32>
  %0 = stablehlo.convolution(%image, %first) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x128x16x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x128x16x16xf32>
  %1 = stablehlo.add %0, %one : tensor<1x128x16x16xf32>
  %2 = stablehlo.tanh %1 : tensor<1x128x16x16xf32>
  %3 = stablehlo.convolution(%2, %second) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x128x16x16xf32>, tensor<3x3x16x16xf32>) -> tensor<1x128x16x16xf32>
  %4 = stablehlo.tanh %3 : tensor<1x128x16x16xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<1x128x16x16xf32>, tensor<f32>) -> tensor<16xf32>
  return %5 : tensor<16xf32>
}
