// RUN: %exla-opt %s --passes=unit-dims | filecheck %s
// RUN: %exla-opt %s --passes=unit-dims --target=gpu | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=unit-dims --no-reassociate | filecheck %s --check-prefix=LEFT

// A trip of attention for one head: the products, the sum and the ops around them lose the dimension of the heads. The ops
// before the loop keep theirs, and so do the carry and its update.

// CHECK: stablehlo.negate %arg0 : tensor<64x1x16xf32>
// CHECK: stablehlo.while
// CHECK: %[[Q:.*]] = stablehlo.reshape %{{.*}} : (tensor<8x1x16xf32>) -> tensor<8x16xf32>
// CHECK: %[[K:.*]] = stablehlo.reshape %{{.*}} : (tensor<64x1x16xf32>) -> tensor<64x16xf32>
// CHECK: %[[S:.*]] = stablehlo.dot_general %[[Q]], %[[K]], contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT] : (tensor<8x16xf32>, tensor<64x16xf32>) -> tensor<8x64xf32>
// CHECK: %[[E:.*]] = stablehlo.exponential %[[S]] : tensor<8x64xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[E]] init: %{{.*}}) applies stablehlo.add across dimensions = [1] : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %[[SUM]], dims = [0] : (tensor<8xf32>) -> tensor<8x64xf32>
// CHECK: %[[W:.*]] = stablehlo.divide %[[E]], %[[B]] : tensor<8x64xf32>
// CHECK: %[[R:.*]] = stablehlo.dot_general %[[W]], %{{.*}}, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
// CHECK: %[[T:.*]] = stablehlo.transpose %[[R]], dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
// CHECK: %[[U:.*]] = stablehlo.reshape %[[T]] : (tensor<16x8xf32>) -> tensor<1x16x8xf32>
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %[[U]]

// LEFT-NOT: stablehlo.reshape

func.func @main(%x: tensor<64x1x16xf32>, %k: tensor<64x1x16xf32>) -> tensor<1x16x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %end = stablehlo.constant dense<64> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %start = stablehlo.constant dense<0.0> : tensor<1x16x64xf32>
  %q = stablehlo.negate %x : tensor<64x1x16xf32>
  %r:2 = stablehlo.while(%i = %zero, %found = %start) : tensor<i32>, tensor<1x16x64xf32>
    cond {
      %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %rows = stablehlo.dynamic_slice %q, %i, %zero, %zero, sizes = [8, 1, 16] : (tensor<64x1x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x1x16xf32>
      %s = stablehlo.dot_general %rows, %k, batching_dims = [1] x [1], contracting_dims = [2] x [2], precision = [HIGHEST, DEFAULT] : (tensor<8x1x16xf32>, tensor<64x1x16xf32>) -> tensor<1x8x64xf32>
      %e = stablehlo.exponential %s : tensor<1x8x64xf32>
      %sum = stablehlo.reduce(%e init: %none) applies stablehlo.add across dimensions = [2] : (tensor<1x8x64xf32>, tensor<f32>) -> tensor<1x8xf32>
      %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8x64xf32>
      %w = stablehlo.divide %e, %sums : tensor<1x8x64xf32>
      %y = stablehlo.dot_general %w, %k, batching_dims = [0] x [1], contracting_dims = [2] x [0] : (tensor<1x8x64xf32>, tensor<64x1x16xf32>) -> tensor<1x8x16xf32>
      %t = stablehlo.transpose %y, dims = [0, 2, 1] : (tensor<1x8x16xf32>) -> tensor<1x16x8xf32>
      %new = stablehlo.dynamic_update_slice %found, %t, %zero, %zero, %i : (tensor<1x16x64xf32>, tensor<1x16x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x64xf32>
      %next = stablehlo.add %i, %eight : tensor<i32>
      stablehlo.return %next, %new : tensor<i32>, tensor<1x16x64xf32>
    }
  return %r#1 : tensor<1x16x64xf32>
}
