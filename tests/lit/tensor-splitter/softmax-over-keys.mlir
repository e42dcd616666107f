// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// One query and many keys, in one loop: the sums are below the largest score so far, and brought down when that rises.
// What the softmax divides by is complete behind the loop only, and so is the division.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<4xf32>, %[[K:[^:]*]]: tensor<65536x4xf32>, %[[V:[^:]*]]: tensor<65536x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1024> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<64> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[LOWEST:.*]] = stablehlo.constant dense<0xFF800000> : tensor<f32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OLD:.*]] = %[[LOWEST]], %[[SUM:.*]] = %[[ZERO_F]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[K_TILE:.*]] = stablehlo.dynamic_slice %[[K]], %[[START]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[K_TILE]], %[[Q]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[HIGHEST:.*]] = stablehlo.reduce(%[[SCORES]] init: %[[LOWEST]]) applies stablehlo.maximum across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[MAX:.*]] = stablehlo.maximum %[[OLD]], %[[HIGHEST]] : tensor<f32>
// CHECK: %[[NONE:.*]] = stablehlo.compare EQ, %[[MAX]], %[[LOWEST]], FLOAT
// CHECK: %[[NEW:.*]] = stablehlo.select %[[NONE]], %[[ZERO_F]], %[[MAX]]
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[NEW]], dims = [] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[SHIFTED:.*]] = stablehlo.subtract %[[SCORES]], %[[SPREAD]] : tensor<1024xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SHIFTED]] : tensor<1024xf32>
// CHECK: %[[PART:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[FALL:.*]] = stablehlo.subtract %[[OLD]], %[[NEW]] : tensor<f32>
// CHECK: %[[GUARDED:.*]] = stablehlo.compare EQ, %[[OLD]], %[[ZERO_F]], FLOAT
// CHECK: %[[LEAST:.*]] = stablehlo.minimum %[[FALL]], %[[ZERO_F]] : tensor<f32>
// CHECK: %[[FALLEN:.*]] = stablehlo.select %[[GUARDED]], %[[LEAST]], %[[FALL]] : tensor<i1>, tensor<f32>
// CHECK: %[[FACTOR:.*]] = stablehlo.exponential %[[FALLEN]] : tensor<f32>
// CHECK: %[[BROUGHT:.*]] = stablehlo.multiply %[[SUM]], %[[FACTOR]] : tensor<f32>
// CHECK: %[[TOTAL:.*]] = stablehlo.add %[[BROUGHT]], %[[PART]] : tensor<f32>
// CHECK: %[[V_TILE:.*]] = stablehlo.dynamic_slice %[[V]], %[[START]], %[[ZERO]], sizes = [1024, 4] : {{.*}} -> tensor<1024x4xf32>
// CHECK: %[[WEIGHED:.*]] = stablehlo.dot_general %{{.*}}, %[[V_TILE]], contracting_dims = [0] x [0] : {{.*}} -> tensor<4xf32>
// CHECK: %[[FACTORS:.*]] = stablehlo.broadcast_in_dim %[[FACTOR]], dims = [] : {{.*}} -> tensor<4xf32>
// CHECK: %[[BROUGHT2:.*]] = stablehlo.multiply %[[OUT]], %[[FACTORS]] : tensor<4xf32>
// CHECK: %[[TOTAL2:.*]] = stablehlo.add %[[BROUGHT2]], %[[WEIGHED]] : tensor<4xf32>
// CHECK: stablehlo.return %{{.*}}, %[[MAX]], %[[TOTAL]], %[[TOTAL2]]
// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.subtract %[[LOOP]]#1, %[[LOOP]]#1
// CHECK: %[[DIVIDED:.*]] = stablehlo.divide %{{.*}}, %{{.*}} : tensor<4xf32>
// CHECK: return %[[DIVIDED]]

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
