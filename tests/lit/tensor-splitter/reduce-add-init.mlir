// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The init of a sum counts once: the state starts from it, each tile from the identity.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>
// CHECK-DAG: %[[IDENTITY:.*]] = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[INIT:.*]] = stablehlo.constant dense<1.500000e+00> : tensor<f32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[INIT]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[TANH:.*]] = stablehlo.tanh %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[TILE_SUM:.*]] = stablehlo.reduce(%[[TANH]] init: %[[IDENTITY]]) applies stablehlo.add across dimensions = [0, 1] : {{.*}} -> tensor<f32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL]], %[[TILE_SUM]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>) -> tensor<f32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.tanh %0 : tensor<256x200xf32>
  %c = stablehlo.constant dense<1.5> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [0, 1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}
