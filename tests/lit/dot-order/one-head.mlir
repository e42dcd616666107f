// RUN: %exla-opt %s --passes=dot-order | filecheck %s
// RUN: %exla-opt %s --passes=dot-order --no-reassociate | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=dot-order --target=gpu | filecheck %s --check-prefix=LEFT

// Products of one head, whose dimension stands between others, lose it: as a batch, and as a dimension of either side. The
// others stay: it stands before all, the right operand is plain, there are two heads, and one side has none of its own.

// CHECK: %[[Q:.*]] = stablehlo.reshape %arg0 : (tensor<8x1x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT: %[[K:.*]] = stablehlo.reshape %arg1 : (tensor<64x1x16xf32>) -> tensor<64x16xf32>
// CHECK-NEXT: %[[ONE:.*]] = stablehlo.dot_general %[[Q]], %[[K]], contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT] : (tensor<8x16xf32>, tensor<64x16xf32>) -> tensor<8x64xf32>
// CHECK-NEXT: stablehlo.reshape %[[ONE]] : (tensor<8x64xf32>) -> tensor<1x8x64xf32>
// CHECK: %[[TWO:.*]] = stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [1] : (tensor<8x16xf32>, tensor<64x16xf32>) -> tensor<8x64xf32>
// CHECK-NEXT: stablehlo.reshape %[[TWO]] : (tensor<8x64xf32>) -> tensor<8x1x64x1xf32>
// CHECK-NOT: stablehlo.reshape
// CHECK: stablehlo.dot_general %arg2, %arg3,
// CHECK: stablehlo.dot_general %arg0, %arg4,
// CHECK: stablehlo.dot_general %arg5, %arg6,
// CHECK: stablehlo.dot_general %arg7, %arg1,

// LEFT-NOT: stablehlo.reshape

func.func @main(%q: tensor<8x1x16xf32>, %k: tensor<64x1x16xf32>, %q_first: tensor<1x8x16xf32>, %k_first: tensor<1x64x16xf32>, %plain: tensor<16x1x64xf32>, %q_two: tensor<8x2x16xf32>, %k_two: tensor<64x2x16xf32>, %vector: tensor<1x16xf32>) -> (tensor<1x8x64xf32>, tensor<8x1x64x1xf32>, tensor<1x8x64xf32>, tensor<1x8x64xf32>, tensor<2x8x64xf32>, tensor<1x64xf32>) {
  %0 = stablehlo.dot_general %q, %k, batching_dims = [1] x [1], contracting_dims = [2] x [2], precision = [HIGHEST, DEFAULT] : (tensor<8x1x16xf32>, tensor<64x1x16xf32>) -> tensor<1x8x64xf32>
  %1 = stablehlo.dot_general %q, %k, contracting_dims = [2] x [2] : (tensor<8x1x16xf32>, tensor<64x1x16xf32>) -> tensor<8x1x64x1xf32>
  %2 = stablehlo.dot_general %q_first, %k_first, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x8x16xf32>, tensor<1x64x16xf32>) -> tensor<1x8x64xf32>
  %3 = stablehlo.dot_general %q, %plain, batching_dims = [1] x [1], contracting_dims = [2] x [0] : (tensor<8x1x16xf32>, tensor<16x1x64xf32>) -> tensor<1x8x64xf32>
  %4 = stablehlo.dot_general %q_two, %k_two, batching_dims = [1] x [1], contracting_dims = [2] x [2] : (tensor<8x2x16xf32>, tensor<64x2x16xf32>) -> tensor<2x8x64xf32>
  %5 = stablehlo.dot_general %vector, %k, batching_dims = [0] x [1], contracting_dims = [1] x [2] : (tensor<1x16xf32>, tensor<64x1x16xf32>) -> tensor<1x64xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<1x8x64xf32>, tensor<8x1x64x1xf32>, tensor<1x8x64xf32>, tensor<1x8x64xf32>, tensor<2x8x64xf32>, tensor<1x64xf32>
}
