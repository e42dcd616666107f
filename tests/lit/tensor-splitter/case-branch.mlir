// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The branch that holds the big tensor gets a loop; the other branch stays.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[WHICH:[^:]*]]: tensor<i32>, %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK: %[[CASE:.*]] = "stablehlo.case"(%[[WHICH]]) ({
// CHECK: stablehlo.return %[[ZEROS]]
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<32x200xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[DOT2]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK: stablehlo.return %[[LOOP]]#1
// CHECK-NOT: 256x200x
// CHECK: return %[[CASE]]

func.func @main(%which: tensor<i32>, %a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %r = "stablehlo.case"(%which) ({
    %zeros = stablehlo.constant dense<0.0> : tensor<256xf32>
    stablehlo.return %zeros : tensor<256xf32>
  }, {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
    %1 = stablehlo.exponential %0 : tensor<256x200xf32>
    %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
    stablehlo.return %2 : tensor<256xf32>
  }) : (tensor<i32>) -> tensor<256xf32>
  return %r : tensor<256xf32>
}
