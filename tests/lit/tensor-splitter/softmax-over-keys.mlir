// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// One query and many keys: a loop for the maximum, one for the sum, one for the result; each makes its scores again.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<4xf32>, %[[K:[^:]*]]: tensor<65536x4xf32>, %[[V:[^:]*]]: tensor<65536x4xf32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1024> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<64> : tensor<i32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<0xFF800000> : tensor<f32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[MAX_LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[C]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[K_TILE:.*]] = stablehlo.dynamic_slice %[[K]], %[[START]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[K_TILE]], %[[Q]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[REDUCE:.*]] = stablehlo.reduce(%[[DOT]] init: %[[C]]) applies stablehlo.maximum across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[MAX:.*]] = stablehlo.maximum %[[TOTAL]], %[[REDUCE]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[MAX]]
// CHECK: %[[SUM_LOOP:.*]]:2 = stablehlo.while(%[[I2:.*]] = %[[ZERO]], %[[TOTAL2:.*]] = %[[ZERO_F]])
// CHECK: stablehlo.compare LT, %[[I2]], %[[TRIPS]], SIGNED
// CHECK: %[[START2:.*]] = stablehlo.multiply %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: %[[K_TILE2:.*]] = stablehlo.dynamic_slice %[[K]], %[[START2]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[K_TILE2]], %[[Q]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[MAX_LOOP]]#1, dims = [] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SHIFTED:.*]] = stablehlo.subtract %[[DOT2]], %[[SPREAD]] : tensor<1024xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SHIFTED]] : tensor<1024xf32>
// CHECK: %[[REDUCE2:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL2]], %[[REDUCE2]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I3:.*]] = %[[ZERO]], %[[TOTAL3:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I3]], %[[TRIPS]], SIGNED
// CHECK: %[[START3:.*]] = stablehlo.multiply %[[I3]], %[[TILE]] : tensor<i32>
// CHECK: %[[K_TILE3:.*]] = stablehlo.dynamic_slice %[[K]], %[[START3]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT3:.*]] = stablehlo.dot_general %[[K_TILE3]], %[[Q]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SPREAD2:.*]] = stablehlo.broadcast_in_dim %[[MAX_LOOP]]#1, dims = [] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SHIFTED2:.*]] = stablehlo.subtract %[[DOT3]], %[[SPREAD2]] : tensor<1024xf32>
// CHECK: %[[EXP2:.*]] = stablehlo.exponential %[[SHIFTED2]] : tensor<1024xf32>
// CHECK: %[[SPREAD3:.*]] = stablehlo.broadcast_in_dim %[[SUM_LOOP]]#1, dims = [] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SCALED:.*]] = stablehlo.divide %[[EXP2]], %[[SPREAD3]] : tensor<1024xf32>
// CHECK: %[[V_TILE:.*]] = stablehlo.dynamic_slice %[[V]], %[[START3]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[DOT4:.*]] = stablehlo.dot_general %[[SCALED]], %[[V_TILE]], contracting_dims = [0] x [0] : {{.*}} -> tensor<4xf32>
// CHECK: %[[SUM2:.*]] = stablehlo.add %[[TOTAL3]], %[[DOT4]] : tensor<4xf32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM2]]
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: return %[[LOOP]]#1

func.func @main(%q: tensor<4xf32>, %k: tensor<65536x4xf32>, %v: tensor<65536x4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.dot_general %k, %q, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<65536xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<65536xf32>
  %4 = stablehlo.exponential %3 : tensor<65536xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<f32>) -> tensor<65536xf32>
  %7 = stablehlo.divide %4, %6 : tensor<65536xf32>
  %8 = stablehlo.dot_general %7, %v, contracting_dims = [0] x [0] : (tensor<65536xf32>, tensor<65536x4xf32>) -> tensor<4xf32>
  return %8 : tensor<4xf32>
}
