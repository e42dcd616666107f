// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// Next-token shift: one reader leaves the last row out, another the first; no tile is masked or read twice.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<257x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[C2:.*]] = stablehlo.constant dense<-1> : tensor<i32>
// CHECK-DAG: %[[ONE:.*]] = stablehlo.constant dense<1> : tensor<i32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<40> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<6> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[ZERO]], %[[ZERO]], sizes = [1, 4] : {{.*}} -> tensor<1x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<1x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<1x200xf32>
// CHECK: %[[SLICE:.*]] = stablehlo.slice %[[EXP]] [0:1, 0:200] : {{.*}} -> tensor<1x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[SLICE]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[ZEROS]], %[[DOT2]], %[[ZERO]] : {{.*}} -> tensor<256xf32>
// CHECK-NOT: 257x200x
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[STATE1:.*]] = %[[WRITTEN]], %[[STATE2:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[START]], %[[ONE]] : tensor<i32>
// CHECK: %[[A_TILE2:.*]] = stablehlo.dynamic_slice %[[A]], %[[SUM]], %[[ZERO]], sizes = [40, 4] : {{.*}} -> tensor<40x4xf32>
// CHECK: %[[DOT3:.*]] = stablehlo.dot_general %[[A_TILE2]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<40x200xf32>
// CHECK: %[[EXP2:.*]] = stablehlo.exponential %[[DOT3]] : tensor<40x200xf32>
// CHECK: %[[SLICE2:.*]] = stablehlo.slice %[[EXP2]] [0:40, 0:200] : {{.*}} -> tensor<40x200xf32>
// CHECK: %[[DOT4:.*]] = stablehlo.dot_general %[[SLICE2]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<40xf32>
// CHECK: %[[WRITTEN2:.*]] = stablehlo.dynamic_update_slice %[[STATE1]], %[[DOT4]], %[[SUM]] : {{.*}} -> tensor<256xf32>
// CHECK: %[[SUM2:.*]] = stablehlo.add %[[SUM]], %[[C2]] : tensor<i32>
// CHECK: %[[WRITTEN3:.*]] = stablehlo.dynamic_update_slice %[[STATE2]], %[[DOT4]], %[[SUM2]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN2]], %[[WRITTEN3]]
// CHECK: %[[PRODUCT:.*]] = stablehlo.multiply %[[LOOP]]#0, %[[TILE]] : tensor<i32>
// CHECK: %[[SUM3:.*]] = stablehlo.add %[[PRODUCT]], %[[ONE]] : tensor<i32>
// CHECK: %[[A_TILE3:.*]] = stablehlo.dynamic_slice %[[A]], %[[SUM3]], %[[ZERO]], sizes = [15, 4] : {{.*}} -> tensor<15x4xf32>
// CHECK: %[[DOT5:.*]] = stablehlo.dot_general %[[A_TILE3]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<15x200xf32>
// CHECK: %[[EXP3:.*]] = stablehlo.exponential %[[DOT5]] : tensor<15x200xf32>
// CHECK: %[[SLICE3:.*]] = stablehlo.slice %[[EXP3]] [0:15, 0:200] : {{.*}} -> tensor<15x200xf32>
// CHECK: %[[DOT6:.*]] = stablehlo.dot_general %[[SLICE3]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<15xf32>
// CHECK: %[[WRITTEN4:.*]] = stablehlo.dynamic_update_slice %[[LOOP]]#1, %[[DOT6]], %[[SUM3]] : {{.*}} -> tensor<256xf32>
// CHECK: %[[SUM4:.*]] = stablehlo.add %[[SUM3]], %[[C2]] : tensor<i32>
// CHECK: %[[WRITTEN5:.*]] = stablehlo.dynamic_update_slice %[[LOOP]]#2, %[[DOT6]], %[[SUM4]] : {{.*}} -> tensor<256xf32>
// CHECK: %[[SUM5:.*]] = stablehlo.add %[[PRODUCT]], %[[C]] : tensor<i32>
// CHECK: %[[A_TILE4:.*]] = stablehlo.dynamic_slice %[[A]], %[[SUM5]], %[[ZERO]], sizes = [1, 4] : {{.*}} -> tensor<1x4xf32>
// CHECK: %[[DOT7:.*]] = stablehlo.dot_general %[[A_TILE4]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<1x200xf32>
// CHECK: %[[EXP4:.*]] = stablehlo.exponential %[[DOT7]] : tensor<1x200xf32>
// CHECK: %[[SLICE4:.*]] = stablehlo.slice %[[EXP4]] [0:1, 0:200] : {{.*}} -> tensor<1x200xf32>
// CHECK: %[[SUM6:.*]] = stablehlo.add %[[SUM5]], %[[C2]] : tensor<i32>
// CHECK: %[[DOT8:.*]] = stablehlo.dot_general %[[SLICE4]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1xf32>
// CHECK: %[[WRITTEN6:.*]] = stablehlo.dynamic_update_slice %[[WRITTEN5]], %[[DOT8]], %[[SUM6]] : {{.*}} -> tensor<256xf32>
// CHECK-NOT: 257x200x
// CHECK: return %[[WRITTEN4]], %[[WRITTEN6]]

func.func @main(%a: tensor<257x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> (tensor<256xf32>, tensor<256xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<257x4xf32>, tensor<200x4xf32>) -> tensor<257x200xf32>
  %1 = stablehlo.exponential %0 : tensor<257x200xf32>
  %2 = stablehlo.slice %1 [0:256, 0:200] : (tensor<257x200xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.slice %1 [1:257, 0:200] : (tensor<257x200xf32>) -> tensor<256x200xf32>
  %4 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %5 = stablehlo.dot_general %3, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %4, %5 : tensor<256xf32>, tensor<256xf32>
}
