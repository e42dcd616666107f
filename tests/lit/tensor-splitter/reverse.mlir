// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// Turned round: the first tile of the result is made of the last rows of the operand.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x200xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[LAST:.*]] = stablehlo.constant dense<224> : tensor<i32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}})
// CHECK: %[[PLACE:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[START:.*]] = stablehlo.subtract %[[LAST]], %[[PLACE]] : tensor<i32>
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], {{.*}} sizes = [32, 200]
// CHECK: %[[TURNED:.*]] = stablehlo.reverse %[[ROWS]], dims = [0] : tensor<32x200xf32>
// CHECK: "stablehlo.sort"(%[[TURNED]])
// CHECK: %[[SUMS:.*]] = stablehlo.dot_general %{{.*}}, %[[V]], {{.*}} -> tensor<32xf32>
// CHECK: stablehlo.dynamic_update_slice %[[OUT]], %[[SUMS]], %[[PLACE]] : {{.*}} -> tensor<256xf32>
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.reverse %a, dims = [0] : tensor<256x200xf32>
  %1 = "stablehlo.sort"(%0) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<256x200xf32>) -> tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
