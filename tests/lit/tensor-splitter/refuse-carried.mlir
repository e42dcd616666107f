// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// The program's own loop carries the big tensor from step to step.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x200xf32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<3> : tensor<i32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[STATE:.*]] = %[[A]])
// CHECK: stablehlo.compare LT, %[[I]], %[[C]]
// CHECK: %[[COSINE:.*]] = stablehlo.cosine %[[STATE]] : tensor<256x200xf32>
// CHECK: stablehlo.return %{{.*}}, %[[COSINE]]
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[LOOP]]#1, %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<256xf32>
// CHECK: return %[[DOT]]

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
