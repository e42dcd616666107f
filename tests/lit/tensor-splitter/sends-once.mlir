// RUN: %exla-opt %s --passes=tensor-splitter --size-threshold=100KB --split-size=64KB --remarks=all 2>&1 | filecheck %s

// Two loops need the sum over devices. The first stores it for the second, which would otherwise send it again.

// CHECK: stablehlo.while
// CHECK: %[[SENT:.*]] = "stablehlo.all_reduce"
// CHECK: (tensor<32x256xf32>) -> tensor<32x256xf32>
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %[[SENT]]
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.all_reduce
// CHECK: 512x256xf32 (524KB) not split: it is needed complete, and the loop writes it slice by slice {{.*}} [tensor-splitter, EX104]

func.func @main(%x: tensor<512x16xf32>, %w: tensor<16x256xf32>, %v: tensor<256x16xf32>) -> tensor<512x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x256xf32>) -> tensor<512x256xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<512x256xf32>) -> tensor<512x256xf32>
  %2 = stablehlo.tanh %1 : tensor<512x256xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<512x256xf32>, tensor<f32>) -> tensor<f32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<512x256xf32>
  %5 = stablehlo.multiply %2, %4 : tensor<512x256xf32>
  %6 = stablehlo.sine %5 : tensor<512x256xf32>
  %turned = stablehlo.transpose %6, dims = [1, 0] : (tensor<512x256xf32>) -> tensor<256x512xf32>
  %7 = stablehlo.dot_general %turned, %v, contracting_dims = [0] x [0] : (tensor<256x512xf32>, tensor<256x16xf32>) -> tensor<512x16xf32>
  return %7 : tensor<512x16xf32>
}
