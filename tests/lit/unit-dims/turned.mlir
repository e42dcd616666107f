// RUN: %exla-opt %s --passes=unit-dims | filecheck %s

// Keys times queries, transposed after a division: the product's operands are swapped, with their precisions. The second
// product is of two plain matrices, and stays.

// CHECK: %[[K:.*]] = stablehlo.reshape %arg0 : (tensor<1x64x16xf32>) -> tensor<64x16xf32>
// CHECK: %[[S:.*]] = stablehlo.dot_general %{{.*}}, %[[K]], contracting_dims = [1] x [1], precision = [DEFAULT, HIGHEST] : (tensor<8x16xf32>, tensor<64x16xf32>) -> tensor<8x64xf32>
// CHECK: %[[D:.*]] = stablehlo.divide %[[S]], %{{.*}} : tensor<8x64xf32>
// CHECK: stablehlo.exponential %[[D]] : tensor<8x64xf32>
// CHECK: %[[P:.*]] = stablehlo.dot_general %{{.*}}, %[[K]], contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
// CHECK: stablehlo.transpose %[[P]], dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>

func.func @main(%k: tensor<1x64x16xf32>, %x: tensor<64x1x16xf32>) -> tensor<1x16x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %rows = stablehlo.constant dense<8> : tensor<i32>
  %end = stablehlo.constant dense<64> : tensor<i32>
  %eight = stablehlo.constant dense<8.0> : tensor<1x64x8xf32>
  %start = stablehlo.constant dense<0.0> : tensor<1x16x64xf32>
  %r:2 = stablehlo.while(%i = %zero, %found = %start) : tensor<i32>, tensor<1x16x64xf32>
    cond {
      %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %q = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [8, 1, 16] : (tensor<64x1x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x1x16xf32>
      %s = stablehlo.dot_general %k, %q, batching_dims = [0] x [1], contracting_dims = [2] x [2], precision = [HIGHEST, DEFAULT] : (tensor<1x64x16xf32>, tensor<8x1x16xf32>) -> tensor<1x64x8xf32>
      %d = stablehlo.divide %s, %eight : tensor<1x64x8xf32>
      %t = stablehlo.transpose %d, dims = [0, 2, 1] : (tensor<1x64x8xf32>) -> tensor<1x8x64xf32>
      %e = stablehlo.exponential %t : tensor<1x8x64xf32>
      %p = stablehlo.dot_general %e, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x8x64xf32>, tensor<1x64x16xf32>) -> tensor<1x8x16xf32>
      %y = stablehlo.transpose %p, dims = [0, 2, 1] : (tensor<1x8x16xf32>) -> tensor<1x16x8xf32>
      %new = stablehlo.dynamic_update_slice %found, %y, %zero, %zero, %i : (tensor<1x16x64xf32>, tensor<1x16x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x64xf32>
      %next = stablehlo.add %i, %rows : tensor<i32>
      stablehlo.return %next, %new : tensor<i32>, tensor<1x16x64xf32>
    }
  return %r#1 : tensor<1x16x64xf32>
}
