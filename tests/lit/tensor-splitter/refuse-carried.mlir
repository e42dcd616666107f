// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The program's own loop carries the big tensor from step to step.

// CHECK: %[[LOOP:.*]]:2 = stablehlo.while({{.*}}) : tensor<i32>, tensor<256x200xf32>
// CHECK: %[[BIG:.*]] = stablehlo.cosine {{.*}} : tensor<256x200xf32>
// CHECK: stablehlo.return {{.*}}, %[[BIG]]
// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.dot_general %[[LOOP]]#1, {{.*}} : (tensor<256x200xf32>, tensor<200xf32>)
// CHECK: refuse-carried.mlir:{{[0-9]+}}:13: remark: 256x200xf32 (205KB) not split: stablehlo.while carries it from one step to the next, or returns it whole [tensor-splitter, EX301]
// CHECK: refuse-carried.mlir:{{[0-9]+}}:12: remark: 256x200xf32 (205KB) not split: stablehlo.cosine updates what the loop carries [tensor-splitter, EX302]

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.cosine %x : tensor<256x200xf32>
      stablehlo.return %next, %0 : tensor<i32>, tensor<256x200xf32>
    }
  %2 = stablehlo.dot_general %loop#1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
