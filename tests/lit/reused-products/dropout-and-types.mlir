// RUN: %exla-opt %s --passes=reused-products --size-threshold=64KB | filecheck %s

// All is bf16 but the sums, and a tenth of the softmax is dropped: the same mask and the same factor on both sides.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %{{.*}}, %{{.*}}, %{{.*}}, %[[G:.*]]: tensor<4x150x8xbf16>)
// CHECK: %[[OUT:.*]] = stablehlo.dot_general {{.*}} -> tensor<4x150x8xbf16>
// CHECK-DAG: %[[WIDE:.*]] = stablehlo.convert %[[OUT]] : (tensor<4x150x8xbf16>) -> tensor<4x150x8xf32>
// CHECK-DAG: %[[WIDE_G:.*]] = stablehlo.convert %[[G]] : (tensor<4x150x8xbf16>) -> tensor<4x150x8xf32>
// CHECK: %[[TERMS:.*]] = stablehlo.multiply %[[WIDE]], %[[WIDE_G]]
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[TERMS]] {{.*}} across dimensions = [2]
// CHECK-NOT: stablehlo.reduce
// CHECK: return %[[OUT]]

func.func @main(%p: tensor<4x150x200xbf16>, %kept: tensor<4x150x200xi1>, %v: tensor<4x200x8xbf16>, %g: tensor<4x150x8xbf16>) -> (tensor<4x150x8xbf16>, tensor<4x150x200xbf16>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x150x200xbf16>
  %share = stablehlo.constant dense<0.9> : tensor<4x150x200xbf16>
  %0 = stablehlo.divide %p, %share : tensor<4x150x200xbf16>
  %1 = stablehlo.select %kept, %0, %zeros : tensor<4x150x200xi1>, tensor<4x150x200xbf16>
  %o = stablehlo.dot_general %1, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x150x200xbf16>, tensor<4x200x8xbf16>) -> tensor<4x150x8xbf16>
  %2 = stablehlo.dot_general %g, %v, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<4x150x8xbf16>, tensor<4x200x8xbf16>) -> tensor<4x150x200xbf16>
  %3 = stablehlo.select %kept, %2, %zeros : tensor<4x150x200xi1>, tensor<4x150x200xbf16>
  %dp = stablehlo.divide %3, %share : tensor<4x150x200xbf16>
  %4 = stablehlo.multiply %dp, %p : tensor<4x150x200xbf16>
  %5 = stablehlo.convert %4 : (tensor<4x150x200xbf16>) -> tensor<4x150x200xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<4x150x200xf32>, tensor<f32>) -> tensor<4x150xf32>
  %7 = stablehlo.convert %6 : (tensor<4x150xf32>) -> tensor<4x150xbf16>
  %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<4x150xbf16>) -> tensor<4x150x200xbf16>
  %9 = stablehlo.subtract %dp, %8 : tensor<4x150x200xbf16>
  %10 = stablehlo.multiply %9, %p : tensor<4x150x200xbf16>
  return %o, %10 : tensor<4x150x8xbf16>, tensor<4x150x200xbf16>
}
