// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// In the body of a loop too, with tensors captured from outside.

// CHECK: stablehlo.while
// CHECK-NOT: tensor<400x400xf32>

func.func @main(%a: tensor<400x8xf32>, %b: tensor<400x8xf32>, %v: tensor<400xf32>) -> tensor<400xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %small = stablehlo.constant dense<0.01> : tensor<400xf32>
  %0:2 = stablehlo.while(%i = %zero, %x = %v) : tensor<i32>, tensor<400xf32>
   cond {
    %1 = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x8xf32>, tensor<400x8xf32>) -> tensor<400x400xf32>
    %2 = stablehlo.dot_general %1, %x, contracting_dims = [1] x [0] : (tensor<400x400xf32>, tensor<400xf32>) -> tensor<400xf32>
    %3 = stablehlo.multiply %2, %small : tensor<400xf32>
    %4 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %4, %3 : tensor<i32>, tensor<400xf32>
  }
  return %0#1 : tensor<400xf32>
}
