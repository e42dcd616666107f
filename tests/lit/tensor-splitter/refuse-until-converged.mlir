// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The loop runs until the largest element of all rows is small: cut, a tile would stop at another step.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256x200xf32>
// CHECK: remark: 256x200xf32 (205KB) not split: stablehlo.while carries it from one step to the next, or returns it unsplit: it runs until all elements along that dimension are done: its condition depends on a split value [tensor-splitter, EX301]

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %ninf = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x200xf32>
    cond {
      %most = stablehlo.reduce(%x init: %ninf) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<f32>
      %go = stablehlo.compare GT, %most, %half : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.sine %x : tensor<256x200xf32>
      stablehlo.return %next, %0 : tensor<i32>, tensor<256x200xf32>
    }
  %2 = stablehlo.dot_general %loop#1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
