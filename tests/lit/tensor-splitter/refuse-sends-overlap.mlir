// RUN: %exla-opt %s --passes=tensor-splitter --size-threshold=100KB --split-size=64KB --remarks=all 2>&1 | filecheck %s

// Each tile of the sines would need more rows or columns of the sum over devices than its own, so that some would be
// sent twice. The sum stays outside of the loops.

// CHECK: "stablehlo.all_reduce"
// CHECK: (tensor<512x256xf32>) -> tensor<512x256xf32>
// CHECK-NOT: "stablehlo.all_reduce"
// CHECK: remark: 512x256xf32 (524KB) not split: stablehlo.all_reduce communicates with other devices [tensor-splitter, EX203]

func.func @main(%x: tensor<512x16xf32>, %w: tensor<16x256xf32>, %v: tensor<255x16xf32>) -> tensor<511x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x16xf32>, tensor<16x256xf32>) -> tensor<512x256xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<512x256xf32>) -> tensor<512x256xf32>
  %2 = stablehlo.tanh %1 : tensor<512x256xf32>
  %3 = stablehlo.slice %2 [0:511, 0:255] : (tensor<512x256xf32>) -> tensor<511x255xf32>
  %4 = stablehlo.slice %2 [1:512, 1:256] : (tensor<512x256xf32>) -> tensor<511x255xf32>
  %5 = stablehlo.subtract %3, %4 : tensor<511x255xf32>
  %6 = stablehlo.sine %5 : tensor<511x255xf32>
  %7 = stablehlo.dot_general %6, %v, contracting_dims = [1] x [0] : (tensor<511x255xf32>, tensor<255x16xf32>) -> tensor<511x16xf32>
  return %7 : tensor<511x16xf32>
}
