// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// Two big tensors that have nothing to do with each other: two loops, one after the other.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>, %[[C:[^:]*]]: tensor<320x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<40> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<320xf32>
// CHECK-DAG: %[[TILE2:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS2:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[STATE:.*]] = %[[ZEROS2]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE2]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<32x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[STATE]], %[[DOT2]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK: %[[LOOP2:.*]]:2 = stablehlo.while(%[[I2:.*]] = %[[ZERO]], %[[STATE2:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I2]], %[[TRIPS]], SIGNED
// CHECK: %[[START2:.*]] = stablehlo.multiply %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: %[[C_TILE:.*]] = stablehlo.dynamic_slice %[[C]], %[[START2]], %[[ZERO]], sizes = [40, 4] : {{.*}} -> tensor<40x4xf32>
// CHECK: %[[DOT3:.*]] = stablehlo.dot_general %[[C_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<40x200xf32>
// CHECK: %[[TANH:.*]] = stablehlo.tanh %[[DOT3]] : tensor<40x200xf32>
// CHECK: %[[DOT4:.*]] = stablehlo.dot_general %[[TANH]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<40xf32>
// CHECK: %[[WRITTEN2:.*]] = stablehlo.dynamic_update_slice %[[STATE2]], %[[DOT4]], %[[START2]] : {{.*}} -> tensor<320xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN2]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1, %[[LOOP2]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>, %c: tensor<320x4xf32>) -> (tensor<256xf32>, tensor<320xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %3 = stablehlo.dot_general %c, %b, contracting_dims = [1] x [1] : (tensor<320x4xf32>, tensor<200x4xf32>) -> tensor<320x200xf32>
  %4 = stablehlo.tanh %3 : tensor<320x200xf32>
  %5 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<320x200xf32>, tensor<200xf32>) -> tensor<320xf32>
  return %2, %5 : tensor<256xf32>, tensor<320xf32>
}
