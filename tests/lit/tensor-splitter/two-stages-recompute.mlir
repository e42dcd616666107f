// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The second loop needs the complete 16x16 product that the first adds up, and makes its tiles of the big matrix again.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4096x4xf32>, %[[B:[^:]*]]: tensor<16x4xf32>, %[[W:[^:]*]]: tensor<16xf32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4096xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<256> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[ZEROS2:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<16x16xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 4096x16x
// CHECK: %[[GRAM:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[ZEROS2]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [256, 4] : {{.*}} -> tensor<256x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x16xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<256x16xf32>
// CHECK: %[[PART:.*]] = stablehlo.dot_general %[[EXP]], %[[EXP]], contracting_dims = [0] x [0] : {{.*}} -> tensor<16x16xf32>
// CHECK: %[[GRAM_SO_FAR:.*]] = stablehlo.add %[[TOTAL]], %[[PART]] : tensor<16x16xf32>
// CHECK: stablehlo.return %{{.*}}, %[[GRAM_SO_FAR]]
// CHECK: %[[WEIGHTS:.*]] = stablehlo.dot_general %[[GRAM]]#1, %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<16xf32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I2:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I2]], %[[TRIPS]], SIGNED
// CHECK: %[[START2:.*]] = stablehlo.multiply %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE2:.*]] = stablehlo.dynamic_slice %[[A]], %[[START2]], %[[ZERO]], sizes = [256, 4] : {{.*}} -> tensor<256x4xf32>
// CHECK: %[[SCORES_AGAIN:.*]] = stablehlo.dot_general %[[A_TILE2]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x16xf32>
// CHECK: %[[EXP_AGAIN:.*]] = stablehlo.exponential %[[SCORES_AGAIN]] : tensor<256x16xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[EXP_AGAIN]], %[[WEIGHTS]], contracting_dims = [1] x [0] : {{.*}} -> tensor<256xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START2]] : {{.*}} -> tensor<4096xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 4096x16x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<4096x4xf32>, %b: tensor<16x4xf32>, %w: tensor<16xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4096x4xf32>, tensor<16x4xf32>) -> tensor<4096x16xf32>
  %1 = stablehlo.exponential %0 : tensor<4096x16xf32>
  %2 = stablehlo.dot_general %1, %1, contracting_dims = [0] x [0] : (tensor<4096x16xf32>, tensor<4096x16xf32>) -> tensor<16x16xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %4 = stablehlo.dot_general %1, %3, contracting_dims = [1] x [0] : (tensor<4096x16xf32>, tensor<16xf32>) -> tensor<4096xf32>
  return %4 : tensor<4096xf32>
}
