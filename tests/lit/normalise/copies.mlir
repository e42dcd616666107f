// A copy gives way to what it copies, in loops as well: no portable artifact can hold an op of mhlo.
// RUN: %exla-opt %s --passes=normalise | filecheck %s
// RUN: %exla-opt %s --passes=normalise --emit=portable | %exla-opt - --passes=normalise | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %[[N:.*]]: tensor<i32>
// CHECK-NOT: mhlo.copy
// CHECK: stablehlo.while
// CHECK-NOT: mhlo.copy
// CHECK: %[[SUM:.*]] = stablehlo.add %[[X]], %{{.*}} : tensor<4xf32>
// CHECK: return %[[SUM]], %[[X]]
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    %copied = mhlo.copy %y : tensor<4xf32>
    %twice = stablehlo.add %copied, %copied : tensor<4xf32>
    stablehlo.return %next, %twice : tensor<i32>, tensor<4xf32>
  }
  %kept = "mhlo.copy"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %sum = stablehlo.add %x, %loop#1 : tensor<4xf32>
  %again = mhlo.copy %sum : tensor<4xf32>
  return %again, %kept : tensor<4xf32>, tensor<4xf32>
}
