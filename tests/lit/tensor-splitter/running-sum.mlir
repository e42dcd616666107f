// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s --check-prefix=ORDER

// A cumulative sum goes on from the last row of the tile before. Without reassociation its rows stay together.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%{{.*}} = %{{.*}}, %[[LAST:.*]] = %{{.*}}, %[[MOST:.*]] = %{{.*}}) : tensor<i32>, tensor<1x200xf32>, tensor<200xf32>
// CHECK: %[[TILE:.*]] = stablehlo.dot_general {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SCAN:.*]] = "stablehlo.reduce_window"(%[[TILE]], {{.*}}padding = dense<{{\[\[}}31, 0], [0, 0]]>{{.*}}window_dimensions = array<i64: 32, 1>
// CHECK: %[[BEFORE:.*]] = stablehlo.broadcast_in_dim %[[LAST]], dims = [0, 1] : (tensor<1x200xf32>) -> tensor<32x200xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.add %[[BEFORE]], %[[SCAN]] : tensor<32x200xf32>
// CHECK: %[[NEXT:.*]] = stablehlo.slice %[[ROWS]] [31:32, 0:200]
// CHECK: "stablehlo.sort"(%[[ROWS]])
// CHECK: stablehlo.return %{{.*}}, %[[NEXT]], %{{.*}} : tensor<i32>, tensor<1x200xf32>, tensor<200xf32>
// CHECK: return %[[LOOP]]#2

// ORDER-LABEL: func.func {{.*}}@main(
// ORDER: window_dimensions = array<i64: 256, 1>

func.func @main(%a: tensor<256x8xf32>, %b: tensor<200x8xf32>) -> tensor<200xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x8xf32>, tensor<200x8xf32>) -> tensor<256x200xf32>
  %1 = "stablehlo.reduce_window"(%0, %zero) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 256, 1>, padding = dense<[[255, 0], [0, 0]]> : tensor<2x2xi64>} : (tensor<256x200xf32>, tensor<f32>) -> tensor<256x200xf32>
  %2 = "stablehlo.sort"(%1) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<256x200xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
  return %3 : tensor<200xf32>
}
