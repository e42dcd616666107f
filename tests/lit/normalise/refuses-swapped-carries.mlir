// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Carries that change places are not invariant, although the body computes neither of them.

// CHECK-LABEL: func.func public @main
// CHECK-SAME: ([[X:%.+]]: tensor<4xf32>, [[Y:%.+]]: tensor<4xf32>)
// CHECK: stablehlo.while({{%.+}} = {{%.+}}, [[A:%.+]] = [[X]], [[B:%.+]] = [[Y]]) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
// CHECK: stablehlo.return {{%.+}}, [[B]], [[A]]

func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %b, %a : tensor<i32>, tensor<4xf32>, tensor<4xf32>
    }
  return %0#1 : tensor<4xf32>
}
