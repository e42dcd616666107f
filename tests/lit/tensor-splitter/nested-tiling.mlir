// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=40KB | filecheck %s

// One index of the first dimension is still too big, and the last is sorted: a loop over the second inside the loop.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4x4xf32>, %[[B:[^:]*]]: tensor<4x8192xf32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<1x4x3xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK-DAG: %[[ZEROS2:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4x4x3xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 4x4x8192x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS2]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [1, 4] : {{.*}} -> tensor<1x4xf32>
// CHECK: %[[LOOP2:.*]]:2 = stablehlo.while(%[[I2:.*]] = %[[ZERO]], %[[OUT2:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I2]], %[[TRIPS]], SIGNED
// CHECK: %[[START2:.*]] = stablehlo.multiply %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE_TILE:.*]] = stablehlo.dynamic_slice %[[A_TILE]], %[[ZERO]], %[[START2]], sizes = [1, 1] : {{.*}} -> tensor<1x1xf32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[A_TILE_TILE]], dims = [0, 1] : {{.*}} -> tensor<1x1x8192xf32>
// CHECK: %[[B_TILE:.*]] = stablehlo.dynamic_slice %[[B]], %[[START2]], %[[ZERO]], sizes = [1, 8192] : {{.*}} -> tensor<1x8192xf32>
// CHECK: %[[SPREAD2:.*]] = stablehlo.broadcast_in_dim %[[B_TILE]], dims = [1, 2] : {{.*}} -> tensor<1x1x8192xf32>
// CHECK: %[[PRODUCT:.*]] = stablehlo.multiply %[[SPREAD]], %[[SPREAD2]] : tensor<1x1x8192xf32>
// CHECK: %[[SORT:.*]] = "stablehlo.sort"(%[[PRODUCT]]) {{.*}} ({
// CHECK: %[[SLICE:.*]] = stablehlo.slice %[[SORT]] [0:1, 0:1, 0:3] : {{.*}} -> tensor<1x1x3xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT2]], %[[SLICE]], %[[ZERO]], %[[START2]], %[[ZERO]] : {{.*}} -> tensor<1x4x3xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: stablehlo.return %[[SUM]], %[[WRITTEN]]
// CHECK: %[[WRITTEN2:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[LOOP2]]#1, %[[START]], %[[ZERO]], %[[ZERO]] : {{.*}} -> tensor<4x4x3xf32>
// CHECK: %[[SUM2:.*]] = stablehlo.add %[[I]], %[[TILE]] : tensor<i32>
// CHECK: stablehlo.return %[[SUM2]], %[[WRITTEN2]]
// CHECK-NOT: 4x4x8192x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<4x4xf32>, %b: tensor<4x8192xf32>) -> tensor<4x4x3xf32> {
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 1] : (tensor<4x4xf32>) -> tensor<4x4x8192xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<4x8192xf32>) -> tensor<4x4x8192xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<4x4x8192xf32>
  %3 = "stablehlo.sort"(%2) <{dimension = 2 : i64, is_stable = true}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<4x4x8192xf32>) -> tensor<4x4x8192xf32>
  %4 = stablehlo.slice %3 [0:4, 0:4, 0:3] : (tensor<4x4x8192xf32>) -> tensor<4x4x3xf32>
  return %4 : tensor<4x4x3xf32>
}
