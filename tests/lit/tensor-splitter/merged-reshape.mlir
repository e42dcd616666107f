// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// A reshape merges the split dimension with the next: its tiles are whole groups of merged rows.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<64x4x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 64x4x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TRIPS]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], %[[ZERO]], sizes = [8, 4, 4] : {{.*}} -> tensor<8x4x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [2] x [1] : {{.*}} -> tensor<8x4x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<8x4x200xf32>
// CHECK: %[[RESHAPE:.*]] = stablehlo.reshape %[[EXP]] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[PRODUCT:.*]] = stablehlo.multiply %[[START]], %[[C]] : tensor<i32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[RESHAPE]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[DOT2]], %[[PRODUCT]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 64x4x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<64x4x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [2] x [1] : (tensor<64x4x4xf32>, tensor<200x4xf32>) -> tensor<64x4x200xf32>
  %1 = stablehlo.exponential %0 : tensor<64x4x200xf32>
  %2 = stablehlo.reshape %1 : (tensor<64x4x200xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %3 : tensor<256xf32>
}
