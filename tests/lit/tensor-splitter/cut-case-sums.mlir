// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The branches sum what is cut as their second result: the tiles' sums are added. A branch has no operand to start with.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256xf32>, tensor<200xf32>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<32x200xf32>
// CHECK: "stablehlo.case"(%arg3)
// CHECK: }) : (tensor<i32>) -> (tensor<32xf32>, tensor<200xf32>)
// CHECK: stablehlo.add %iterArg{{.*}} : tensor<200xf32>
// CHECK-NOT: not split

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>, %u: tensor<256xf32>, %which: tensor<i32>) -> (tensor<256xf32>, tensor<200xf32>) {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %steps:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.cosine %x : tensor<256x200xf32>
      stablehlo.return %next, %0 : tensor<i32>, tensor<256x200xf32>
    }
  %both:2 = "stablehlo.case"(%which) ({
    %0 = stablehlo.exponential %steps#1 : tensor<256x200xf32>
    %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
    %2 = stablehlo.dot_general %0, %u, contracting_dims = [0] x [0] : (tensor<256x200xf32>, tensor<256xf32>) -> tensor<200xf32>
    stablehlo.return %1, %2 : tensor<256xf32>, tensor<200xf32>
  }, {
    %0 = stablehlo.dot_general %steps#1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
    %1 = stablehlo.dot_general %steps#1, %u, contracting_dims = [0] x [0] : (tensor<256x200xf32>, tensor<256xf32>) -> tensor<200xf32>
    stablehlo.return %0, %1 : tensor<256xf32>, tensor<200xf32>
  }) : (tensor<i32>) -> (tensor<256xf32>, tensor<200xf32>)
  return %both#0, %both#1 : tensor<256xf32>, tensor<200xf32>
}
