// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// One loop brings out row sums, written tile by tile, and column sums and the maximum, which are accumulated.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[ZERO_F]], dims = [] : {{.*}} -> tensor<200xf32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]], %[[COLUMN_SUMS:.*]] = %[[SPREAD]], %[[LARGEST:.*]] = %[[ZERO_F]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: %[[TILE_SUMS:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [0] : {{.*}} -> tensor<200xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[COLUMN_SUMS]], %[[TILE_SUMS]] : tensor<200xf32>
// CHECK: %[[TILE_LARGEST:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.maximum across dimensions = [0, 1] : {{.*}} -> tensor<f32>
// CHECK: %[[MAX:.*]] = stablehlo.maximum %[[LARGEST]], %[[TILE_LARGEST]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]], %[[SUM]], %[[MAX]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1, %[[LOOP]]#2, %[[LOOP]]#3

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> (tensor<256xf32>, tensor<200xf32>, tensor<f32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
  %4 = stablehlo.reduce(%1 init: %zero) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<f32>
  return %2, %3, %4 : tensor<256xf32>, tensor<200xf32>, tensor<f32>
}
