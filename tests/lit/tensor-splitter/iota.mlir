// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A causal mask from two iotas: along the split dimension the tile's own place is added, along the other nothing.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<512x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[OFF:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<512xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 512x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[LOCAL_ROW:.*]] = stablehlo.iota dim = 0 : tensor<32x200xi32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[START]], dims = [] : {{.*}} -> tensor<32x200xi32>
// CHECK: %[[ROW:.*]] = stablehlo.add %[[LOCAL_ROW]], %[[SPREAD]] : tensor<32x200xi32>
// CHECK: %[[COLUMN:.*]] = stablehlo.iota dim = 1 : tensor<32x200xi32>
// CHECK: %[[BELOW:.*]] = stablehlo.compare GE, %[[ROW]], %[[COLUMN]] : {{.*}} -> tensor<32x200xi1>
// CHECK: %[[OFFS:.*]] = stablehlo.broadcast_in_dim %[[OFF]], dims = [] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[MASKED:.*]] = stablehlo.select %[[BELOW]], %[[EXP]], %[[OFFS]] : tensor<32x200xi1>, tensor<32x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[MASKED]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START]] : {{.*}} -> tensor<512xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 512x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<512x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<512xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<512x4xf32>, tensor<200x4xf32>) -> tensor<512x200xf32>
  %1 = stablehlo.exponential %0 : tensor<512x200xf32>
  %2 = stablehlo.iota dim = 0 : tensor<512x200xi32>
  %3 = stablehlo.iota dim = 1 : tensor<512x200xi32>
  %4 = stablehlo.compare GE, %2, %3 : (tensor<512x200xi32>, tensor<512x200xi32>) -> tensor<512x200xi1>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %5 = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<512x200xf32>
  %6 = stablehlo.select %4, %1, %5 : tensor<512x200xi1>, tensor<512x200xf32>
  %7 = stablehlo.dot_general %6, %v, contracting_dims = [1] x [0] : (tensor<512x200xf32>, tensor<200xf32>) -> tensor<512xf32>
  return %7 : tensor<512xf32>
}
