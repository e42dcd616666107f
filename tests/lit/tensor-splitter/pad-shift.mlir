// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// A pad by two rows ends one run of tiles and starts another: rows of padding are made, not computed.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>, %[[P:[^:]*]]: tensor<f32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<-2> : tensor<i32>
// CHECK-DAG: %[[C2:.*]] = stablehlo.constant dense<2> : tensor<i32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<258xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[P]], dims = [] : {{.*}} -> tensor<2x200xf32>
// CHECK: %[[PAD_ROWS:.*]] = stablehlo.dot_general %[[SPREAD]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<2xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[ZEROS]], %[[PAD_ROWS]], %[[ZERO]] : {{.*}} -> tensor<258xf32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[WRITTEN]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[START]], %[[C2]] : tensor<i32>
// CHECK: %[[SUM2:.*]] = stablehlo.add %[[SUM]], %[[C]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[SUM2]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[PAD:.*]] = stablehlo.pad %[[EXP]], %[[P]], low = [0, 0], high = [0, 0], interior = [0, 0] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[PAD]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN2:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[SUM]] : {{.*}} -> tensor<258xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN2]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>, %p: tensor<f32>) -> tensor<258xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.pad %1, %p, low = [2, 0], high = [0, 0], interior = [0, 0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<258x200xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<258x200xf32>, tensor<200xf32>) -> tensor<258xf32>
  return %3 : tensor<258xf32>
}
