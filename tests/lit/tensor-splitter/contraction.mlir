// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The split dimension is the one that the last dot sums over: partial sums are added up.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<65536x4xf32>, %[[W:[^:]*]]: tensor<4xf32>, %[[V:[^:]*]]: tensor<65536x3xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1024> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<64> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<1024xf32>
// CHECK: %[[V_TILE:.*]] = stablehlo.dynamic_slice %[[V]], %[[START]], %[[ZERO]], sizes = [1024, 3] : {{.*}} -> tensor<1024x3xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[EXP]], %[[V_TILE]], contracting_dims = [0] x [0] : {{.*}} -> tensor<3xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL]], %[[DOT2]] : tensor<3xf32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<65536x4xf32>, %w: tensor<4xf32>, %v: tensor<65536x3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %1 = stablehlo.exponential %0 : tensor<65536xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [0] x [0] : (tensor<65536xf32>, tensor<65536x3xf32>) -> tensor<3xf32>
  return %2 : tensor<3xf32>
}
