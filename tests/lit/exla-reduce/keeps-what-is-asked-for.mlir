// RUN: %exla-reduce %s --check 'grep -q stablehlo.tanh' -o %t 2> %t.summary
// RUN: filecheck %s < %t
// RUN: filecheck %s --check-prefix=SUMMARY < %t.summary
// RUN: not %exla-reduce %s --check 'grep -q nowhere' -o %t.none 2>&1 | filecheck %s --check-prefix=BORING
// RUN: not cat %t.none
// RUN: not %exla-reduce %t --check true -o %t 2>&1 | filecheck %s --check-prefix=SAME

// Calls, the loop and every other op go, and the dimensions become 1.

// CHECK: func.func @main() -> tensor<1xf32> {
// CHECK-NEXT: %[[zero:[a-z]+]] = stablehlo.constant dense<0.000000e+00> : tensor<1xf32>
// CHECK-NEXT: %[[tanh:[0-9]+]] = stablehlo.tanh %[[zero]] : tensor<1xf32>
// CHECK-NEXT: return %[[tanh]] : tensor<1xf32>
// CHECK-NOT: func.func

// SUMMARY: keeps-what-is-asked-for.mlir: 10 ops, {{.*}}, became 2 ops, {{.*}} checks
// BORING: keeps-what-is-asked-for.mlir: error: the module is not interesting itself: the command exits with 1 for it
// SAME: Error: --output is the input file, which is never overwritten

func.func @main(%x: tensor<64xf32>, %v: tensor<64xf32>) -> (tensor<64xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<64xf32>
    cond {
      %n = stablehlo.constant dense<10> : tensor<i32>
      %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %b = func.call @step(%a, %v) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
      stablehlo.return %next, %b : tensor<i32>, tensor<64xf32>
    }
  %s = stablehlo.dot_general %loop#1, %v, contracting_dims = [0] x [0] : (tensor<64xf32>, tensor<64xf32>) -> tensor<f32>
  return %loop#1, %s : tensor<64xf32>, tensor<f32>
}

func.func private @step(%a: tensor<64xf32>, %v: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.multiply %a, %v : tensor<64xf32>
  %1 = stablehlo.tanh %0 : tensor<64xf32>
  return %1 : tensor<64xf32>
}
