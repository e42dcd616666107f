// RUN: %exla-opt %s --passes=normalise | filecheck %s
// RUN: %exla-opt %s --passes=normalise -o %t.once
// RUN: %exla-opt %t.once --passes=normalise,normalise | diff %t.once -

// What a loop carries and never changes is captured: %limit and %k.

// CHECK-LABEL: func.func public @main
// CHECK-SAME: ([[X:%.+]]: tensor<4xf32>, [[N:%.+]]: tensor<i32>)
// CHECK: [[LAST:%.+]] = stablehlo.minimum [[N]], {{%.+}}
// CHECK: [[LOOP:%.+]]:2 = stablehlo.while([[I:%.+]] = {{%.+}}, [[Y:%.+]] = [[X]]) : tensor<i32>, tensor<4xf32>
// CHECK: stablehlo.compare LT, [[I]], [[LAST]]
// CHECK: stablehlo.multiply [[Y]], [[X]]
// CHECK: return [[LOOP]]#1, [[X]]

func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %last = stablehlo.minimum %n, %three : tensor<i32>
  %0:4 = stablehlo.while(%i = %zero, %limit = %last, %k = %x, %y = %x)
      : tensor<i32>, tensor<i32>, tensor<4xf32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.multiply %y, %k : tensor<4xf32>
      stablehlo.return %j, %limit, %k, %z : tensor<i32>, tensor<i32>, tensor<4xf32>, tensor<4xf32>
    }
  return %0#3, %0#2 : tensor<4xf32>, tensor<4xf32>
}
