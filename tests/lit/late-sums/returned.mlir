// RUN: %exla-opt %s --passes=late-sums --size-threshold=2KB --remarks=all 2>&1 | filecheck %s

// The squares of the sum are a result, so that tiles of it would save nothing.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<30xf32>, tensor<30x30xf32>
// CHECK-NOT: stablehlo.while
// CHECK-NOT: EX020

func.func @main(%m: tensor<30x30xf32>, %start: tensor<30xf32>, %y: tensor<30xf32>) -> (tensor<30xf32>, tensor<30xf32>, tensor<30x30xf32>) {
  %n = stablehlo.constant dense<5> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<30x30xf32>
  %loop:3 = stablehlo.while(%i = %c0, %h = %start, %sum = %zeros) : tensor<i32>, tensor<30xf32>, tensor<30x30xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %product = stablehlo.dot_general %m, %h, contracting_dims = [1] x [0] : (tensor<30x30xf32>, tensor<30xf32>) -> tensor<30xf32>
    %next = stablehlo.sine %product : tensor<30xf32>
    %term = stablehlo.dot_general %h, %y, contracting_dims = [] x [] : (tensor<30xf32>, tensor<30xf32>) -> tensor<30x30xf32>
    %added = stablehlo.add %sum, %term : tensor<30x30xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next, %added : tensor<i32>, tensor<30xf32>, tensor<30x30xf32>
  }
  %squares = stablehlo.multiply %loop#2, %loop#2 : tensor<30x30xf32>
  %rows = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<30x30xf32>, tensor<f32>) -> tensor<30xf32>
  return %loop#1, %rows, %squares : tensor<30xf32>, tensor<30xf32>, tensor<30x30xf32>
}
