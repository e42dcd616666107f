// RUN: env PYTHONHASHSEED=1 %exla-opt %s --size-threshold=64KB --split-size=32KB -o %t.one
// RUN: env PYTHONHASHSEED=2 %exla-opt %s --size-threshold=64KB --split-size=32KB -o %t.other
// RUN: diff %t.one %t.other
// RUN: filecheck %s < %t.one

// Two runs write the same bytes, whatever Python's hash seed.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[ZERO_F]], dims = [] : {{.*}} -> tensor<200xf32>
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[STATE1:.*]] = %[[ZEROS]], %[[STATE2:.*]] = %[[SPREAD]], %[[STATE3:.*]] = %[[ZERO_F]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<32x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[STATE1]], %[[DOT2]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: %[[REDUCE:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [0] : {{.*}} -> tensor<200xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[STATE2]], %[[REDUCE]] : tensor<200xf32>
// CHECK: %[[REDUCE2:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.maximum across dimensions = [0, 1] : {{.*}} -> tensor<f32>
// CHECK: %[[MAX:.*]] = stablehlo.maximum %[[STATE3]], %[[REDUCE2]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]], %[[SUM]], %[[MAX]]
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
