// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate 2>&1 | filecheck %s

// A sum of floats may not be made tile by tile; a maximum may, for it rounds nothing.

// CHECK: %[[WHOLE:.*]] = stablehlo.exponential {{.*}} : tensor<65536xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[WHOLE]] init: {{.*}}) applies stablehlo.add
// CHECK-NOT: tensor<50000xf32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = {{.*}}, %[[TOTAL:.*]] = {{.*}})
// CHECK: stablehlo.dynamic_slice {{.*}}, sizes = [2000, 4]
// CHECK: %[[TILE:.*]] = stablehlo.dot_general {{.*}} -> tensor<2000xf32>
// CHECK: %[[PART:.*]] = stablehlo.reduce(%[[TILE]] init: {{.*}}) applies stablehlo.maximum
// CHECK: %[[MAX:.*]] = stablehlo.maximum %[[TOTAL]], %[[PART]]
// CHECK: stablehlo.return {{.*}}, %[[MAX]]
// CHECK: return %[[SUM]], %[[LOOP]]#1
// CHECK: no-reassociate.mlir:{{[0-9]+}}:8: remark: 65536xf32 (262KB) not split: --no-reassociate forbids summing tile by tile (stablehlo.reduce at {{.*}}) [tensor-splitter, EX310]

func.func @main(%a: tensor<65536x4xf32>, %w: tensor<4xf32>, %b: tensor<50000x4xf32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %1 = stablehlo.exponential %0 : tensor<65536xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %3 = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0] : (tensor<50000x4xf32>, tensor<4xf32>) -> tensor<50000xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<50000xf32>, tensor<f32>) -> tensor<f32>
  return %2, %4 : tensor<f32>, tensor<f32>
}
