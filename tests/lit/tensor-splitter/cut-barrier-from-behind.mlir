// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The search that begins at the product meets the barrier from behind, in two of its results at once: it is cut in both.

// CHECK: stablehlo.while
// CHECK: stablehlo.optimization_barrier {{.*}} : tensor<[[ROWS:[0-9]+]]x200xf32>, tensor<[[ROWS]]x200xf32>
// CHECK-NOT: stablehlo.while
// CHECK-NOT: not split

func.func @main(%x: tensor<512x16xf32>, %w: tensor<16x200xf32>, %a: tensor<512x1xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x200xf32>) -> tensor<512x200xf32>
  %1 = stablehlo.broadcast_in_dim %a, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x200xf32>
  %2 = stablehlo.sine %1 : tensor<512x200xf32>
  %3 = stablehlo.cosine %1 : tensor<512x200xf32>
  %4:2 = stablehlo.optimization_barrier %2, %3 : tensor<512x200xf32>, tensor<512x200xf32>
  %5 = stablehlo.multiply %4#0, %4#1 : tensor<512x200xf32>
  %6 = stablehlo.add %0, %5 : tensor<512x200xf32>
  %7 = stablehlo.reduce(%6 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<512x200xf32>, tensor<f32>) -> tensor<f32>
  return %7 : tensor<f32>
}
