// RUN: %exla-opt %s --passes=convolution-layout | filecheck %s

// The gradient of a depthwise kernel: a loop over the nine positions of the kernel, outside of loops as well.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x6x6x16xf32>, %[[DY:[^:]*]]: tensor<2x6x6x16xf32>
// CHECK: %[[PADDED:.*]] = stablehlo.pad %[[X]], %{{.*}}, low = [0, 1, 1, 0], high = [0, 1, 1, 0]
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[PLACE:.*]] = %{{.*}}, %[[SO_FAR:.*]] = %{{.*}}) : tensor<i32>, tensor<9x16xf32>
// CHECK: %[[PART:.*]] = stablehlo.dynamic_slice %[[PADDED]], %{{.*}}, sizes = [2, 6, 6, 16]
// CHECK: %[[TERMS:.*]] = stablehlo.multiply %[[PART]], %[[DY]]
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[TERMS]] {{.*}} across dimensions = [1, 2, 0]
// CHECK: %[[LINE:.*]] = stablehlo.reshape %[[SUM]] : (tensor<16xf32>) -> tensor<1x16xf32>
// CHECK: stablehlo.dynamic_update_slice %[[SO_FAR]], %[[LINE]], %[[PLACE]]
// CHECK: stablehlo.reshape %[[LOOP]]#1 : (tensor<9x16xf32>) -> tensor<1x3x3x16xf32>
// CHECK-NOT: stablehlo.convolution

func.func @main(%x: tensor<2x6x6x16xf32>, %dy: tensor<2x6x6x16xf32>) -> tensor<3x3x1x16xf32> {
  %0 = stablehlo.convolution(%x, %dy) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 16 : i64, feature_group_count = 1 : i64} : (tensor<2x6x6x16xf32>, tensor<2x6x6x16xf32>) -> tensor<3x3x1x16xf32>
  return %0 : tensor<3x3x1x16xf32>
}
