// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Every second row is read: a tile of 32 rows of the result is made of 64 rows of what it is taken from.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<512x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TWO:.*]] = stablehlo.constant dense<2> : tensor<i32>
// CHECK-DAG: %[[SIXTEEN:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-NOT: 512x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}})
// CHECK: stablehlo.compare LT, %[[I]], %[[SIXTEEN]], SIGNED
// CHECK: %[[PLACE:.*]] = stablehlo.multiply %[[I]], %[[SIXTEEN]] : tensor<i32>
// CHECK: %[[START:.*]] = stablehlo.multiply %[[PLACE]], %[[TWO]] : tensor<i32>
// CHECK: stablehlo.dynamic_slice %[[A]], %[[START]], {{.*}} sizes = [32, 4]
// CHECK: %[[SORTED:.*]] = "stablehlo.sort"
// CHECK: %[[ODD:.*]] = stablehlo.slice %[[SORTED]] [1:32:2, 0:200] : (tensor<32x200xf32>) -> tensor<16x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %[[ODD]], %[[V]]
// CHECK: stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[PLACE]] : {{.*}} -> tensor<256xf32>
// CHECK-NOT: 512x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<512x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<512x4xf32>, tensor<200x4xf32>) -> tensor<512x200xf32>
  %1 = "stablehlo.sort"(%0) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<512x200xf32>) -> tensor<512x200xf32>
  %2 = stablehlo.slice %1 [1:512:2, 0:200] : (tensor<512x200xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %3 : tensor<256xf32>
}
