// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// A barrier of several tensors, as jax.checkpoint writes it: it holds rows of what is cut, large or small, and all of the
// weights. What is made of those alone, behind it, is made in each tile, and all is one loop.

// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: %[[HELD:.*]]:4 = stablehlo.optimization_barrier {{.*}} : tensor<[[ROWS:[0-9]+]]x16xf32>, tensor<16x200xf32>, tensor<[[ROWS]]xf32>, tensor<[[ROWS]]x200xf32>
// CHECK: stablehlo.dot_general %[[HELD]]#0, %[[HELD]]#1
// CHECK: stablehlo.reverse %[[HELD]]#1
// CHECK-NOT: stablehlo.while
// CHECK-NOT: not split

func.func @main(%x: tensor<512x16xf32>, %w: tensor<16x200xf32>) -> (tensor<16x200xf32>, tensor<512x16xf32>) {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x200xf32>) -> tensor<512x200xf32>
  %h = stablehlo.tanh %0 : tensor<512x200xf32>
  %m = stablehlo.reduce(%h init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<512x200xf32>, tensor<f32>) -> tensor<512xf32>
  %ct = stablehlo.sine %h : tensor<512x200xf32>
  %1:4 = stablehlo.optimization_barrier %x, %w, %m, %ct : tensor<512x16xf32>, tensor<16x200xf32>, tensor<512xf32>, tensor<512x200xf32>
  %2 = stablehlo.dot_general %1#0, %1#1, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x200xf32>) -> tensor<512x200xf32>
  %3 = stablehlo.tanh %2 : tensor<512x200xf32>
  %4 = stablehlo.broadcast_in_dim %1#2, dims = [0] : (tensor<512xf32>) -> tensor<512x200xf32>
  %5 = stablehlo.subtract %3, %4 : tensor<512x200xf32>
  %6 = stablehlo.multiply %5, %1#3 : tensor<512x200xf32>
  %7 = stablehlo.dot_general %1#0, %6, contracting_dims = [0] x [0] : (tensor<512x16xf32>, tensor<512x200xf32>) -> tensor<16x200xf32>
  %8 = stablehlo.reverse %1#1, dims = [0] : tensor<16x200xf32>
  %9 = stablehlo.dot_general %6, %8, contracting_dims = [1] x [1] : (tensor<512x200xf32>, tensor<16x200xf32>) -> tensor<512x16xf32>
  return %7, %9 : tensor<16x200xf32>, tensor<512x16xf32>
}
