// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// Every step divides by the sum over all elements: a tile does not know it.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256x200xf32>
// CHECK: remark: 256x200xf32 (205KB) not split: stablehlo.while carries it from one step to the next, or returns it unsplit: stablehlo.divide needs the complete sum over the split dimension (stablehlo.divide at {{.*}}refuse-sum-in-loop.mlir:22:12) [tensor-splitter, EX301]

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.exponential %x : tensor<256x200xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<f32>
      %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<256x200xf32>
      %3 = stablehlo.divide %0, %2 : tensor<256x200xf32>
      stablehlo.return %next, %3 : tensor<i32>, tensor<256x200xf32>
    }
  %2 = stablehlo.dot_general %loop#1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
