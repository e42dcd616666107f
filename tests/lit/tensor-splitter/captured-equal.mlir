// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=32KB --split-size=16KB | filecheck %s

// Two iterations and a product read a matrix of which some elements are at a bound. All make it again, but which elements
// are at the bound is asked by one loop alone, and its answers are read: each would round as its own tiles do.

// CHECK-NOT: tensor<256x200xf32>
// CHECK: %[[ASKED:.*]]:2 = stablehlo.while({{.*}}) : tensor<i32>, tensor<256x200xi1>
// CHECK: stablehlo.compare EQ, {{.*}} -> tensor<16x200xi1>
// CHECK-NOT: stablehlo.compare EQ
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<200xf32>
// CHECK: stablehlo.dynamic_slice %[[ASKED]]#1
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<200xf32>
// CHECK: stablehlo.dynamic_slice %[[ASKED]]#1
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256xf32>
// CHECK: stablehlo.dynamic_slice %[[ASKED]]#1
// CHECK-NOT: stablehlo.compare EQ
// CHECK-NOT: tensor<256x200xf32>

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %start: tensor<200xf32>) -> (tensor<200xf32>, tensor<256xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %bound = stablehlo.constant dense<0.5> : tensor<256x200xf32>
  %least = stablehlo.minimum %0, %bound : tensor<256x200xf32>
  %at = stablehlo.compare EQ, %0, %least : (tensor<256x200xf32>, tensor<256x200xf32>) -> tensor<256x200xi1>
  %1 = stablehlo.select %at, %0, %bound : tensor<256x200xi1>, tensor<256x200xf32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %i0, %v = %start) : tensor<i32>, tensor<200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
      %3 = stablehlo.tanh %2 : tensor<256xf32>
      %4 = stablehlo.dot_general %3, %1, contracting_dims = [0] x [0] : (tensor<256xf32>, tensor<256x200xf32>) -> tensor<200xf32>
      %5 = stablehlo.tanh %4 : tensor<200xf32>
      stablehlo.return %next, %5 : tensor<i32>, tensor<200xf32>
    }
  %back:2 = stablehlo.while(%i = %i0, %v = %loop#1) : tensor<i32>, tensor<200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
      %3 = stablehlo.logistic %2 : tensor<256xf32>
      %4 = stablehlo.dot_general %3, %1, contracting_dims = [0] x [0] : (tensor<256xf32>, tensor<256x200xf32>) -> tensor<200xf32>
      %5 = stablehlo.tanh %4 : tensor<200xf32>
      stablehlo.return %next, %5 : tensor<i32>, tensor<200xf32>
    }
  %7 = stablehlo.dot_general %1, %back#1, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %back#1, %7 : tensor<200xf32>, tensor<256xf32>
}
