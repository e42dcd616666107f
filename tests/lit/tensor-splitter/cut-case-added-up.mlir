// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=64KB --remarks=all 2>&1 | filecheck %s

// The cosine is recomputed in the second branch, which then reads nothing that is cut outside of it: its sum over the rows is
// added up in tiles as that of the first branch is.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<200xf32>, tensor<256xf32>
// CHECK: "stablehlo.case"(%arg2)
// CHECK-COUNT-2: across dimensions = [0] : (tensor<64x200xf32>, tensor<f32>) -> tensor<200xf32>
// CHECK: "stablehlo.sort"
// CHECK: remark: 256x200xf32 (205KB) split over dimension 0 (256): 4 tiles of 64, with 2 more big tensors
// CHECK-NOT: not split

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>, %which: tensor<i32>) -> (tensor<256xf32>, tensor<200xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.cosine %a : tensor<256x200xf32>
  %b:2 = "stablehlo.case"(%which) ({
    %0 = stablehlo.exponential %c : tensor<256x200xf32>
    %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
    stablehlo.return %0, %1 : tensor<256x200xf32>, tensor<200xf32>
  }, {
    %0 = stablehlo.multiply %c, %c : tensor<256x200xf32>
    %1 = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
    stablehlo.return %0, %1 : tensor<256x200xf32>, tensor<200xf32>
  }) : (tensor<i32>) -> (tensor<256x200xf32>, tensor<200xf32>)
  %1 = "stablehlo.sort"(%b#0) <{dimension = 1 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %3 = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  }) : (tensor<256x200xf32>) -> tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2, %b#1 : tensor<256xf32>, tensor<200xf32>
}
