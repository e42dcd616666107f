// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A prime size: equal tiles in a loop, and the rest as straight-line code that is neither masked nor repeated.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<257x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<40> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<6> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<257xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 257x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [40, 4] : {{.*}} -> tensor<40x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<40x200xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SCORES]] : tensor<40x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<40xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[START]] : {{.*}} -> tensor<257xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK: %[[DONE:.*]] = stablehlo.multiply %[[LOOP]]#0, %[[TILE]] : tensor<i32>
// CHECK: %[[TAIL_START:.*]] = stablehlo.add %[[DONE]], %[[ZERO]] : tensor<i32>
// CHECK: %[[A_TAIL:.*]] = stablehlo.dynamic_slice %[[A]], %[[TAIL_START]], %[[ZERO]], sizes = [17, 4] : {{.*}} -> tensor<17x4xf32>
// CHECK: %[[TAIL_SCORES:.*]] = stablehlo.dot_general %[[A_TAIL]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<17x200xf32>
// CHECK: %[[TAIL_EXP:.*]] = stablehlo.exponential %[[TAIL_SCORES]] : tensor<17x200xf32>
// CHECK: %[[TAIL_ROWS:.*]] = stablehlo.dot_general %[[TAIL_EXP]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<17xf32>
// CHECK: %[[ALL:.*]] = stablehlo.dynamic_update_slice %[[LOOP]]#1, %[[TAIL_ROWS]], %[[TAIL_START]] : {{.*}} -> tensor<257xf32>
// CHECK-NOT: 257x200x
// CHECK: return %[[ALL]]

func.func @main(%a: tensor<257x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<257xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<257x4xf32>, tensor<200x4xf32>) -> tensor<257x200xf32>
  %1 = stablehlo.exponential %0 : tensor<257x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<257x200xf32>, tensor<200xf32>) -> tensor<257xf32>
  return %2 : tensor<257xf32>
}
