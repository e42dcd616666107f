// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// A sum of floats may not be made in pieces; a maximum may, for it rounds nothing.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<65536x4xf32>, %[[W:[^:]*]]: tensor<4xf32>, %[[B:[^:]*]]: tensor<50000x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<2000> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<25> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A]], %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<65536xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<65536xf32>
// CHECK: %[[REDUCE:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[STATE:.*]] = %[[ZERO_F]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[B_TILE:.*]] = stablehlo.dynamic_slice %[[B]], %[[START]], %[[ZERO]], sizes = [2000, 4] : {{.*}} -> tensor<2000x4xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[B_TILE]], %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<2000xf32>
// CHECK: %[[REDUCE2:.*]] = stablehlo.reduce(%[[DOT2]] init: %[[ZERO_F]]) applies stablehlo.maximum across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[MAX:.*]] = stablehlo.maximum %[[STATE]], %[[REDUCE2]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[MAX]]
// CHECK: return %[[REDUCE]], %[[LOOP]]#1

func.func @main(%a: tensor<65536x4xf32>, %w: tensor<4xf32>, %b: tensor<50000x4xf32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %1 = stablehlo.exponential %0 : tensor<65536xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %3 = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0] : (tensor<50000x4xf32>, tensor<4xf32>) -> tensor<50000xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<50000xf32>, tensor<f32>) -> tensor<f32>
  return %2, %4 : tensor<f32>, tensor<f32>
}
