// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Sinkhorn: the cost matrix is made once outside and read in every step; it is recomputed in the steps, in tiles.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[START:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<200xf32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<3> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[START]])
// CHECK: stablehlo.compare LT, %[[I]], %[[C]]
// CHECK: %[[LOOP2:.*]]:2 = stablehlo.while(%[[I2:.*]] = %[[ZERO]], %[[TOTAL2:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I2]], %[[TRIPS]], SIGNED
// CHECK: %[[START2:.*]] = stablehlo.multiply %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START2]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SIGMOID:.*]] = stablehlo.logistic %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[SIGMOID]], %[[TOTAL]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[TANH:.*]] = stablehlo.tanh %[[DOT2]] : tensor<32xf32>
// CHECK: %[[DOT3:.*]] = stablehlo.dot_general %[[TANH]], %[[SIGMOID]], contracting_dims = [0] x [0] : {{.*}} -> tensor<200xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL2]], %[[DOT3]] : tensor<200xf32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK: %[[TANH2:.*]] = stablehlo.tanh %[[LOOP2]]#1 : tensor<200xf32>
// CHECK: stablehlo.return %{{.*}}, %[[TANH2]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %start: tensor<200xf32>) -> tensor<200xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.logistic %0 : tensor<256x200xf32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %i0, %v = %start) : tensor<i32>, tensor<200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
      %3 = stablehlo.tanh %2 : tensor<256xf32>
      %4 = stablehlo.dot_general %3, %1, contracting_dims = [0] x [0] : (tensor<256xf32>, tensor<256x200xf32>) -> tensor<200xf32>
      %5 = stablehlo.tanh %4 : tensor<200xf32>
      stablehlo.return %next, %5 : tensor<i32>, tensor<200xf32>
    }
  return %loop#1 : tensor<200xf32>
}
