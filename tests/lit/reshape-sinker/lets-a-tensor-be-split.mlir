// RUN: %exla-opt %s --passes=reshape-sinker --size-threshold=64KB | filecheck %s

// The reshape hides the rows of the second dimension from the splitter: behind the exponential and the sum it is small.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x100x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[X]] : tensor<3x100x200xf32>
// CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[EXP]], %{{.*}} : tensor<3x100x200xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[SCALED]] init: %{{.*}}) applies stablehlo.add across dimensions = [2] : {{.*}} -> tensor<3x100xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[SUM]] : (tensor<3x100xf32>) -> tensor<300xf32>
// CHECK: return %[[ROWS]]

func.func @main(%x: tensor<3x100x200xf32>, %s: tensor<f32>) -> tensor<300xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reshape %x : (tensor<3x100x200xf32>) -> tensor<300x200xf32>
  %1 = stablehlo.exponential %0 : tensor<300x200xf32>
  %2 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<300x200xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<300x200xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<300x200xf32>, tensor<f32>) -> tensor<300xf32>
  return %4 : tensor<300xf32>
}
