// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate 2>&1 | filecheck %s

// Sums of rows are cut by rows. A tile starts from zero, so that no init is counted twice; where that is added at the
// end, it is added in another order.

// CHECK: %[[WHOLE:.*]] = stablehlo.exponential {{.*}} : tensor<4000x16xf32>
// CHECK: %[[FROM:.*]] = stablehlo.reduce(%[[WHOLE]] init: %arg2) applies stablehlo.add
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while
// CHECK: %[[TILE:.*]] = stablehlo.dot_general {{.*}} -> tensor<{{[0-9]+}}x20xf32>
// CHECK: stablehlo.reduce(%{{.*}} init: {{.*}}) applies stablehlo.add
// CHECK: return %[[FROM]], %[[LOOP]]#1

func.func @main(%a: tensor<4000x4xf32>, %w: tensor<4x16xf32>, %init: tensor<f32>, %b: tensor<4x20xf32>) -> (tensor<4000xf32>, tensor<4000xf32>) {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<4000x4xf32>, tensor<4x16xf32>) -> tensor<4000x16xf32>
  %1 = stablehlo.exponential %0 : tensor<4000x16xf32>
  %2 = stablehlo.reduce(%1 init: %init) applies stablehlo.add across dimensions = [1] : (tensor<4000x16xf32>, tensor<f32>) -> tensor<4000xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4000x4xf32>, tensor<4x20xf32>) -> tensor<4000x20xf32>
  %4 = stablehlo.exponential %3 : tensor<4000x20xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4000x20xf32>, tensor<f32>) -> tensor<4000xf32>
  return %2, %5 : tensor<4000xf32>, tensor<4000xf32>
}
