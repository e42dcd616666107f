// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Both operands of the last dot are the same big tensor: one tile of it serves both.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4096x4xf32>, %[[B:[^:]*]]: tensor<16x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<256> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<16x16xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 4096x16x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [256, 4] : {{.*}} -> tensor<256x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x16xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<256x16xf32>
// CHECK: %[[PRODUCT:.*]] = stablehlo.dot_general %[[EXP]], %[[EXP]], contracting_dims = [0] x [0] : {{.*}} -> tensor<16x16xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL]], %[[PRODUCT]] : tensor<16x16xf32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK-NOT: 4096x16x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<4096x4xf32>, %b: tensor<16x4xf32>) -> tensor<16x16xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4096x4xf32>, tensor<16x4xf32>) -> tensor<4096x16xf32>
  %1 = stablehlo.exponential %0 : tensor<4096x16xf32>
  %2 = stablehlo.dot_general %1, %1, contracting_dims = [0] x [0] : (tensor<4096x16xf32>, tensor<4096x16xf32>) -> tensor<16x16xf32>
  return %2 : tensor<16x16xf32>
}
