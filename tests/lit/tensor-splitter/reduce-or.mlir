// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Booleans take one byte each; tiles are combined by `or`.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<65536x4xf32>, %[[W:[^:]*]]: tensor<4xf32>, %[[LIMIT:[^:]*]]: tensor<f32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1024> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<64> : tensor<i32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<false> : tensor<i1>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[C]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[LIMIT]], dims = [] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[COMPARED:.*]] = stablehlo.compare LT, %[[DOT]], %[[SPREAD]] : {{.*}} -> tensor<1024xi1>
// CHECK: %[[REDUCE:.*]] = stablehlo.reduce(%[[COMPARED]] init: %[[C]]) applies stablehlo.or across dimensions = [0] : {{.*}} -> tensor<i1>
// CHECK: %[[OR:.*]] = stablehlo.or %[[TOTAL]], %[[REDUCE]] : tensor<i1>
// CHECK: stablehlo.return %{{.*}}, %[[OR]]
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<65536x4xf32>, %w: tensor<4xf32>, %limit: tensor<f32>) -> tensor<i1> {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %1 = stablehlo.broadcast_in_dim %limit, dims = [] : (tensor<f32>) -> tensor<65536xf32>
  %2 = stablehlo.compare LT, %0, %1 : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xi1>
  %c = stablehlo.constant dense<false> : tensor<i1>
  %3 = stablehlo.reduce(%2 init: %c) applies stablehlo.or across dimensions = [0] : (tensor<65536xi1>, tensor<i1>) -> tensor<i1>
  return %3 : tensor<i1>
}
