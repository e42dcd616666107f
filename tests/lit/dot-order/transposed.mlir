// RUN: %exla-opt %s --passes=dot-order | filecheck %s
// RUN: %exla-opt %s --passes=dot-order --no-reassociate | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=dot-order --target=gpu | filecheck %s --check-prefix=LEFT

// Three multiply transposed matrices: two of them alone, one with dimensions of 1 between, and a batch. The others stay: one
// operand is not transposed, the result is large, and no dimension of its own on one side.

// CHECK: %[[ONE:.*]] = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT] : (tensor<16x64xf32>, tensor<64x8xf32>) -> tensor<16x8xf32>
// CHECK-NEXT: %[[HELD:.*]] = stablehlo.optimization_barrier %[[ONE]]
// CHECK-NEXT: stablehlo.transpose %[[HELD]], dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
// CHECK: %[[TWO:.*]] = stablehlo.dot_general %arg3, %arg2, batching_dims = [0] x [1], contracting_dims = [2] x [0] : (tensor<1x16x64xf64>, tensor<64x1x8xf64>) -> tensor<1x16x8xf64>
// CHECK-NEXT: %[[KEPT:.*]] = stablehlo.optimization_barrier %[[TWO]]
// CHECK-NEXT: stablehlo.transpose %[[KEPT]], dims = [0, 2, 1] : (tensor<1x16x8xf64>) -> tensor<1x8x16xf64>
// CHECK-NOT: optimization_barrier
// CHECK: stablehlo.dot_general %arg0, %arg4,
// CHECK: stablehlo.dot_general %arg5, %arg6,
// CHECK: %[[PAIR:.*]] = stablehlo.dot_general %arg8, %arg7, batching_dims = [0] x [1], contracting_dims = [2] x [0] : (tensor<2x16x64xf32>, tensor<64x2x8xf32>) -> tensor<2x16x8xf32>
// CHECK-NEXT: %[[BOTH:.*]] = stablehlo.optimization_barrier %[[PAIR]]
// CHECK-NEXT: stablehlo.transpose %[[BOTH]], dims = [0, 2, 1] : (tensor<2x16x8xf32>) -> tensor<2x8x16xf32>
// CHECK-NOT: optimization_barrier
// CHECK: stablehlo.dot_general %arg0, %arg9,

// LEFT-NOT: optimization_barrier

func.func @main(%a: tensor<64x8xf32>, %b: tensor<16x64xf32>, %c: tensor<64x1x8xf64>, %d: tensor<1x16x64xf64>, %plain: tensor<64x16xf32>, %short: tensor<4x8xf32>, %low: tensor<16x4xf32>, %two: tensor<64x2x8xf32>, %pair: tensor<2x16x64xf32>, %vector: tensor<64xf32>) -> (tensor<8x16xf32>, tensor<1x8x16xf64>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<2x8x16xf32>, tensor<8xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [1], precision = [DEFAULT, HIGHEST] : (tensor<64x8xf32>, tensor<16x64xf32>) -> tensor<8x16xf32>
  %1 = stablehlo.dot_general %c, %d, batching_dims = [1] x [0], contracting_dims = [0] x [2] : (tensor<64x1x8xf64>, tensor<1x16x64xf64>) -> tensor<1x8x16xf64>
  %2 = stablehlo.dot_general %a, %plain, contracting_dims = [0] x [0] : (tensor<64x8xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
  %3 = stablehlo.dot_general %short, %low, contracting_dims = [0] x [1] : (tensor<4x8xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
  %4 = stablehlo.dot_general %two, %pair, batching_dims = [1] x [0], contracting_dims = [0] x [2] : (tensor<64x2x8xf32>, tensor<2x16x64xf32>) -> tensor<2x8x16xf32>
  %5 = stablehlo.dot_general %a, %vector, contracting_dims = [0] x [0] : (tensor<64x8xf32>, tensor<64xf32>) -> tensor<8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<8x16xf32>, tensor<1x8x16xf64>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<2x8x16xf32>, tensor<8xf32>
}
