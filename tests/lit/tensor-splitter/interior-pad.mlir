// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A row of padding between every two rows: a tile of the result holds half as many rows of the operand.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>, %[[P:[^:]*]]: tensor<f32>
// CHECK-DAG: %[[TWO:.*]] = stablehlo.constant dense<2> : tensor<i32>
// CHECK-DAG: %[[SIXTEEN:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-NOT: 512x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}})
// CHECK: stablehlo.compare LT, %[[I]], %[[SIXTEEN]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[SIXTEEN]] : tensor<i32>
// CHECK: stablehlo.dynamic_slice %[[A]], %[[START]], {{.*}} sizes = [16, 4]
// CHECK: %[[EXP:.*]] = stablehlo.exponential %{{.*}} : tensor<16x200xf32>
// CHECK: stablehlo.pad %[[EXP]], %[[P]], low = [1, 0], high = [0, 0], interior = [1, 0] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[PLACE:.*]] = stablehlo.multiply %[[START]], %[[TWO]] : tensor<i32>
// CHECK: %[[ROWS:.*]] = stablehlo.dot_general %{{.*}}, %[[V]], {{.*}} -> tensor<32xf32>
// CHECK: stablehlo.dynamic_update_slice %[[OUT]], %[[ROWS]], %[[PLACE]] : {{.*}} -> tensor<512xf32>
// CHECK-NOT: 512x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>, %p: tensor<f32>) -> tensor<512xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.pad %1, %p, low = [1, 0], high = [0, 0], interior = [1, 0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<512x200xf32>
  %3 = "stablehlo.sort"(%2) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<512x200xf32>) -> tensor<512x200xf32>
  %4 = stablehlo.dot_general %3, %v, contracting_dims = [1] x [0] : (tensor<512x200xf32>, tensor<200xf32>) -> tensor<512xf32>
  return %4 : tensor<512xf32>
}
