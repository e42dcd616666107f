// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The largest logit and its index: the reduce's two results are combined by its own body, ties included.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<65536x4xf32>, %[[W:[^:]*]]: tensor<4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1024> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<64> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[LOW:.*]] = stablehlo.constant dense<0xFF800000> : tensor<f32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[BEST_VALUE:.*]] = %[[LOW]], %[[BEST_PLACE:.*]] = %[[ZERO]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[IOTA:.*]] = stablehlo.iota dim = 0 : tensor<1024xi32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[START]], dims = [] : {{.*}} -> tensor<1024xi32>
// CHECK: %[[PLACES:.*]] = stablehlo.add %[[IOTA]], %[[SPREAD]] : tensor<1024xi32>
// CHECK: %[[TILE_BEST:.*]]:2 = stablehlo.reduce(%[[DOT]] init: %[[LOW]]), (%[[PLACES]] init: %[[ZERO]]) across dimensions = [0] : {{.*}} -> (tensor<f32>, tensor<i32>)
// CHECK: %[[COMPARED:.*]] = stablehlo.compare GT, %[[BEST_VALUE]], %[[TILE_BEST]]#0 : {{.*}} -> tensor<i1>
// CHECK: %[[COMPARED2:.*]] = stablehlo.compare NE, %[[BEST_VALUE]], %[[BEST_VALUE]] : {{.*}} -> tensor<i1>
// CHECK: %[[OR:.*]] = stablehlo.or %[[COMPARED]], %[[COMPARED2]] : tensor<i1>
// CHECK: %[[COMPARED3:.*]] = stablehlo.compare EQ, %[[BEST_VALUE]], %[[TILE_BEST]]#0 : {{.*}} -> tensor<i1>
// CHECK: %[[COMPARED4:.*]] = stablehlo.compare LT, %[[BEST_PLACE]], %[[TILE_BEST]]#1 : {{.*}} -> tensor<i1>
// CHECK: %[[AND:.*]] = stablehlo.and %[[COMPARED3]], %[[COMPARED4]] : tensor<i1>
// CHECK: %[[OR2:.*]] = stablehlo.or %[[OR]], %[[AND]] : tensor<i1>
// CHECK: %[[VALUE:.*]] = stablehlo.select %[[OR]], %[[BEST_VALUE]], %[[TILE_BEST]]#0 : tensor<i1>, tensor<f32>
// CHECK: %[[PLACE:.*]] = stablehlo.select %[[OR2]], %[[BEST_PLACE]], %[[TILE_BEST]]#1 : tensor<i1>, tensor<i32>
// CHECK: stablehlo.return %{{.*}}, %[[VALUE]], %[[PLACE]]
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: return %[[LOOP]]#1, %[[LOOP]]#2

func.func @main(%a: tensor<65536x4xf32>, %w: tensor<4xf32>) -> (tensor<f32>, tensor<i32>) {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %1 = stablehlo.iota dim = 0 : tensor<65536xi32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %2:2 = stablehlo.reduce(%0 init: %low), (%1 init: %none) across dimensions = [0] : (tensor<65536xf32>, tensor<65536xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
   reducer(%x: tensor<f32>, %y: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %3 = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.compare NE, %x, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.or %3, %4 : tensor<i1>
    %6 = stablehlo.compare EQ, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %8 = stablehlo.and %6, %7 : tensor<i1>
    %9 = stablehlo.or %5, %8 : tensor<i1>
    %10 = stablehlo.select %5, %x, %y : tensor<i1>, tensor<f32>
    %11 = stablehlo.select %9, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %10, %11 : tensor<f32>, tensor<i32>
  }
  return %2#0, %2#1 : tensor<f32>, tensor<i32>
}
