// RUN: %exla-opt %s --passes=tensor-splitter --size-threshold=100KB --split-size=64KB --remarks=all 2>&1 | filecheck %s

// A product whose parts are added up over devices: each tile adds up its own part, so that no device holds all of it.

// CHECK: stablehlo.while
// CHECK: stablehlo.dot_general {{.*}} -> tensor<32x256xf32>
// CHECK: "stablehlo.all_reduce"
// CHECK: (tensor<32x256xf32>) -> tensor<32x256xf32>
// CHECK: stablehlo.tanh {{.*}} : tensor<32x256xf32>
// CHECK-NOT: stablehlo.all_reduce
// CHECK-NOT: exla.
// CHECK: 512x256xf32 (524KB) split over dimension 0 (512): 16 tiles of 32, with 2 more big tensors [tensor-splitter, EX001]
// CHECK-NOT: not split

func.func @main(%x: tensor<512x16xf32>, %w: tensor<16x256xf32>, %v: tensor<256x16xf32>) -> tensor<512x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x256xf32>) -> tensor<512x256xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<512x256xf32>) -> tensor<512x256xf32>
  %2 = stablehlo.tanh %1 : tensor<512x256xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<512x256xf32>, tensor<256x16xf32>) -> tensor<512x16xf32>
  return %3 : tensor<512x16xf32>
}
