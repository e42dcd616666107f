// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A step of the program's own loop holds the big tensor: the tiles are a loop inside it.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200x4xf32>, %[[START:[^:]*]]: tensor<256x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256x4xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<3> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[START]])
// CHECK: stablehlo.compare LT, %[[I]], %[[C]]
// CHECK: %[[LOOP2:.*]]:2 = stablehlo.while(%[[I2:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I2]], %[[TRIPS]], SIGNED
// CHECK: %[[START2:.*]] = stablehlo.multiply %[[I2]], %[[TILE]] : tensor<i32>
// CHECK: %[[STATE_TILE:.*]] = stablehlo.dynamic_slice %[[TOTAL]], %[[START2]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[STATE_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SIGMOID:.*]] = stablehlo.logistic %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[SIGMOID]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[DOT2]], %[[START2]], %[[ZERO]] : {{.*}} -> tensor<256x4xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK: %[[TANH:.*]] = stablehlo.tanh %[[LOOP2]]#1 : tensor<256x4xf32>
// CHECK: stablehlo.return %{{.*}}, %[[TANH]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%b: tensor<200x4xf32>, %v: tensor<200x4xf32>, %start: tensor<256x4xf32>) -> tensor<256x4xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %start) : tensor<i32>, tensor<256x4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.dot_general %x, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
      %1 = stablehlo.logistic %0 : tensor<256x200xf32>
      %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200x4xf32>) -> tensor<256x4xf32>
      %3 = stablehlo.tanh %2 : tensor<256x4xf32>
      stablehlo.return %next, %3 : tensor<i32>, tensor<256x4xf32>
    }
  return %loop#1 : tensor<256x4xf32>
}
