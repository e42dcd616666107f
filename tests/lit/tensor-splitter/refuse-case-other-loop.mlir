// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=64KB --remarks=all 2>&1 | filecheck %s

// One branch sums over the rows, the other adds up something small in a loop of its own, which starts from zero: what comes
// of it is complete, and would be counted once for each tile.

// CHECK: "stablehlo.case"(%arg2)
// CHECK-NOT: "stablehlo.case"
// CHECK: remark: 256x200xf32 (205KB) not split: it is needed complete

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>, %which: tensor<i32>) -> (tensor<256xf32>, tensor<200xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %start = stablehlo.constant dense<0.0> : tensor<200xf32>
  %first = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  %c = stablehlo.cosine %a : tensor<256x200xf32>
  %b = "stablehlo.case"(%which) ({
    %0 = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
    stablehlo.return %0 : tensor<200xf32>
  }, {
    %0:2 = stablehlo.while(%i = %first, %sum = %start) : tensor<i32>, tensor<200xf32>
    cond {
      %1 = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.add %sum, %v : tensor<200xf32>
      stablehlo.return %1, %2 : tensor<i32>, tensor<200xf32>
    }
    stablehlo.return %0#1 : tensor<200xf32>
  }) : (tensor<i32>) -> tensor<200xf32>
  %1 = "stablehlo.sort"(%c) <{dimension = 1 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %3 = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  }) : (tensor<256x200xf32>) -> tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2, %b : tensor<256xf32>, tensor<200xf32>
}
