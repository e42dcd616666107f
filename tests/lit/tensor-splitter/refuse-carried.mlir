// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The program's own loop carries the big tensor and turns it round in every step: its rows are columns in the next.

// CHECK: %[[LOOP:.*]]:2 = stablehlo.while({{.*}}) : tensor<i32>, tensor<200x200xf32>
// CHECK: %[[TURNED:.*]] = stablehlo.transpose
// CHECK: stablehlo.return {{.*}}, %[[TURNED]]
// CHECK: remark: 200x200xf32 (160KB) not split: stablehlo.while carries it from one step to the next, or returns it unsplit: a split value comes back split differently (stablehlo.return at {{.*}}refuse-carried.mlir:22:7) [tensor-splitter, EX301]

func.func @main(%a: tensor<200x200xf32>, %v: tensor<200xf32>) -> tensor<200xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<200x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.cosine %x : tensor<200x200xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<200x200xf32>) -> tensor<200x200xf32>
      stablehlo.return %next, %1 : tensor<i32>, tensor<200x200xf32>
    }
  %2 = stablehlo.dot_general %loop#1, %v, contracting_dims = [1] x [0] : (tensor<200x200xf32>, tensor<200xf32>) -> tensor<200xf32>
  return %2 : tensor<200xf32>
}
