// RUN: %exla-opt %s --passes=tensor-splitter --size-threshold=100KB --split-size=64KB --remarks=all 2>&1 | filecheck %s

// In the body of the program's loop, the sum over devices would be sent in every step, of which nobody knows how many
// there are. A loop before it sends and stores the sum.

// CHECK: "stablehlo.all_reduce"
// CHECK: (tensor<32x256xf32>) -> tensor<32x256xf32>
// CHECK: stablehlo.while({{.*}}) : tensor<256x4xf32>, tensor<f32>
// CHECK-NOT: "stablehlo.all_reduce"
// CHECK: remark: 512x256xf32 (524KB) not split: {{.*}} [tensor-splitter, EX

func.func @main(%x: tensor<512x16xf32>, %w: tensor<16x256xf32>, %v: tensor<256x4xf32>) -> tensor<256x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %most = stablehlo.constant dense<100.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x256xf32>) -> tensor<512x256xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<512x256xf32>) -> tensor<512x256xf32>
  %r:2 = stablehlo.while(%u = %v, %size = %zero) : tensor<256x4xf32>, tensor<f32>
    cond {
      %go = stablehlo.compare LT, %size, %most : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %t = stablehlo.tanh %1 : tensor<512x256xf32>
      %y = stablehlo.dot_general %t, %u, contracting_dims = [1] x [0] : (tensor<512x256xf32>, tensor<256x4xf32>) -> tensor<512x4xf32>
      %z = stablehlo.dot_general %t, %y, contracting_dims = [0] x [0] : (tensor<512x256xf32>, tensor<512x4xf32>) -> tensor<256x4xf32>
      %q = stablehlo.multiply %z, %z : tensor<256x4xf32>
      %n = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<256x4xf32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %z, %n : tensor<256x4xf32>, tensor<f32>
    }
  return %r#0 : tensor<256x4xf32>
}
