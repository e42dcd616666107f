// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Only the loop reads the sorted tensor, and each tile only the rows that it writes: the loop begins with that tensor, and
// has no second buffer.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[SORTED:.*]] = "stablehlo.sort"
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SO_FAR:.*]] = %[[SORTED]])
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %{{.*}} : tensor<i32>
// CHECK: %[[TILE:.*]] = stablehlo.dynamic_slice %[[SO_FAR]], %[[START]], %{{.*}}, sizes = [8, 16]
// CHECK: stablehlo.dot_general %[[TILE]]
// CHECK: %[[NEW:.*]] = stablehlo.add %[[TILE]]
// CHECK: %[[AFTER:.*]] = stablehlo.dynamic_update_slice %[[SO_FAR]], %[[NEW]], %[[START]]
// CHECK: stablehlo.return %{{.*}}, %[[AFTER]]
// CHECK: return %[[LOOP]]#1

func.func @main(%x: tensor<4096x16xf32>, %w: tensor<512x16xf32>) -> tensor<4096x16xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  }) : (tensor<4096x16xf32>) -> tensor<4096x16xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1] : (tensor<4096x16xf32>, tensor<512x16xf32>) -> tensor<4096x512xf32>
  %2 = stablehlo.tanh %1 : tensor<4096x512xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<4096x512xf32>, tensor<512x16xf32>) -> tensor<4096x16xf32>
  %4 = stablehlo.add %0, %3 : tensor<4096x16xf32>
  return %4 : tensor<4096x16xf32>
}
