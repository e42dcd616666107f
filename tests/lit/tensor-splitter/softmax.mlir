// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Attention split over its queries: one loop; the row maximum and the row sum exist tile by tile, inside it.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<256x4xf32>, %[[K:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<0xFF800000> : tensor<f32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256x4xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[Q_TILE:.*]] = stablehlo.dynamic_slice %[[Q]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[Q_TILE]], %[[K]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[ROW_MAX:.*]] = stablehlo.reduce(%[[SCORES]] init: %[[C]]) applies stablehlo.maximum across dimensions = [1] : {{.*}} -> tensor<32xf32>
// CHECK: %[[MAXES:.*]] = stablehlo.broadcast_in_dim %[[ROW_MAX]], dims = [0] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SHIFTED:.*]] = stablehlo.subtract %[[SCORES]], %[[MAXES]] : tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SHIFTED]] : tensor<32x200xf32>
// CHECK: %[[ROW_SUM:.*]] = stablehlo.reduce(%[[EXP]] init: %[[ZERO_F]]) applies stablehlo.add across dimensions = [1] : {{.*}} -> tensor<32xf32>
// CHECK: %[[SUMS:.*]] = stablehlo.broadcast_in_dim %[[ROW_SUM]], dims = [0] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SCALED:.*]] = stablehlo.divide %[[EXP]], %[[SUMS]] : tensor<32x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[SCALED]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START]], %[[ZERO]] : {{.*}} -> tensor<256x4xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%q: tensor<256x4xf32>, %k: tensor<200x4xf32>, %v: tensor<200x4xf32>) -> tensor<256x4xf32> {
  %0 = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<256x200xf32>
  %4 = stablehlo.exponential %3 : tensor<256x200xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %7 = stablehlo.divide %4, %6 : tensor<256x200xf32>
  %8 = stablehlo.dot_general %7, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200x4xf32>) -> tensor<256x4xf32>
  return %8 : tensor<256x4xf32>
}
