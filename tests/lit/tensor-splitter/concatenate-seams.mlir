// Along the dimension that a concatenate joins, the tiles end at the seams: one loop for each part.
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=100KB --split-size=20KB | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-NOT: tensor<700x100xf32>
// CHECK: stablehlo.while
// CHECK: stablehlo.exponential {{.*}} : tensor<{{[0-9]+}}x100xf32>
// CHECK-NOT: stablehlo.concatenate
// CHECK: stablehlo.while
// CHECK: stablehlo.dynamic_update_slice
// CHECK-NOT: tensor<700x100xf32>
func.func @main(%a: tensor<400x8xf32>, %b: tensor<300x8xf32>, %w: tensor<8x100xf32>) -> tensor<700xf32> {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<400x8xf32>, tensor<8x100xf32>) -> tensor<400x100xf32>
  %1 = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0] : (tensor<300x8xf32>, tensor<8x100xf32>) -> tensor<300x100xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<400x100xf32>, tensor<300x100xf32>) -> tensor<700x100xf32>
  %3 = stablehlo.exponential %2 : tensor<700x100xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<700x100xf32>, tensor<f32>) -> tensor<700xf32>
  return %4 : tensor<700xf32>
}
