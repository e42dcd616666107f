// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A batch of products of square matrices: only the batch is left to split.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<64x32x32xf32>, %[[V:[^:]*]]: tensor<32xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<64x32xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: dot_general {{.*}}64x32x32x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], %[[ZERO]], sizes = [4, 32, 32] : {{.*}} -> tensor<4x32x32xf32>
// CHECK: %[[SQUARE:.*]] = stablehlo.dot_general %[[A_TILE]], %[[A_TILE]], batching_dims = [0] x [0], contracting_dims = [2] x [1] : {{.*}} -> tensor<4x32x32xf32>
// CHECK: %[[FOURTH:.*]] = stablehlo.dot_general %[[SQUARE]], %[[SQUARE]], batching_dims = [0] x [0], contracting_dims = [2] x [1] : {{.*}} -> tensor<4x32x32xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[FOURTH]], %[[V]], contracting_dims = [2] x [0] : {{.*}} -> tensor<4x32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START]], %[[ZERO]] : {{.*}} -> tensor<64x32xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: dot_general {{.*}}64x32x32x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<64x32x32xf32>, %v: tensor<32xf32>) -> tensor<64x32xf32> {
  %0 = stablehlo.dot_general %a, %a, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<64x32x32xf32>, tensor<64x32x32xf32>) -> tensor<64x32x32xf32>
  %1 = stablehlo.dot_general %0, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<64x32x32xf32>, tensor<64x32x32xf32>) -> tensor<64x32x32xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [2] x [0] : (tensor<64x32x32xf32>, tensor<32xf32>) -> tensor<64x32xf32>
  return %2 : tensor<64x32xf32>
}
