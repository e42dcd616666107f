// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Two big tensors that have nothing to do with each other: two loops, one after the other.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>, %[[C:[^:]*]]: tensor<320x4xf32>
// CHECK-DAG: %[[OTHER_TILE:.*]] = stablehlo.constant dense<40> : tensor<i32>
// CHECK-DAG: %[[OTHER_ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<320xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK: %[[OTHER_LOOP:.*]]:2 = stablehlo.while(%[[OTHER_I:.*]] = %[[ZERO]], %[[OTHER_OUT:.*]] = %[[OTHER_ZEROS]])
// CHECK: stablehlo.compare LT, %[[OTHER_I]], %[[TRIPS]], SIGNED
// CHECK: %[[OTHER_START:.*]] = stablehlo.multiply %[[OTHER_I]], %[[OTHER_TILE]] : tensor<i32>
// CHECK: %[[C_TILE:.*]] = stablehlo.dynamic_slice %[[C]], %[[OTHER_START]], %[[ZERO]], sizes = [40, 4] : {{.*}} -> tensor<40x4xf32>
// CHECK: %[[OTHER_SCORES:.*]] = stablehlo.dot_general %[[C_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<40x200xf32>
// CHECK: %[[TANH:.*]] = stablehlo.tanh %[[OTHER_SCORES]] : tensor<40x200xf32>
// CHECK: %[[OTHER_ROWS:.*]] = stablehlo.dot_general %[[TANH]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<40xf32>
// CHECK: %[[OTHER_WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OTHER_OUT]], %[[OTHER_ROWS]], %[[OTHER_START]] : {{.*}} -> tensor<320xf32>
// CHECK: stablehlo.return %{{.*}}, %[[OTHER_WRITTEN]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1, %[[OTHER_LOOP]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>, %c: tensor<320x4xf32>) -> (tensor<256xf32>, tensor<320xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %3 = stablehlo.dot_general %c, %b, contracting_dims = [1] x [1] : (tensor<320x4xf32>, tensor<200x4xf32>) -> tensor<320x200xf32>
  %4 = stablehlo.tanh %3 : tensor<320x200xf32>
  %5 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<320x200xf32>, tensor<200xf32>) -> tensor<320xf32>
  return %2, %5 : tensor<256xf32>, tensor<320xf32>
}
