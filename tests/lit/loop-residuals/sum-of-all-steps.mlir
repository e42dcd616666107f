// RUN: %exla-opt %s --passes=loop-residuals,normalise --size-threshold=2KB --remarks=passed 2>&1 | filecheck %s
// RUN: %exla-opt %s --passes=loop-residuals,normalise --size-threshold=2KB --no-reassociate --remarks=passed 2>&1 | filecheck %s --check-prefix=ORDER

// What the loop stacks is only read for the sum of its squares and for its maximum: the loop carries both.

// CHECK-NOT: -> tensor<20x4x8xf32>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<4x8xf32>, tensor<f32>, tensor<4x8xf32>
// CHECK: %[[SQUARES:.*]] = stablehlo.multiply
// CHECK: stablehlo.reduce(%[[SQUARES]] init: %{{.*}}) applies stablehlo.add across dimensions = [0, 1, 2]
// CHECK: stablehlo.maximum %{{.*}}, %{{.*}} : tensor<4x8xf32>
// CHECK: reduced step by step by the loop that computes it: 20 steps are not stored [loop-residuals, EX007]

// The order of the sum may not change, so the stack stays.

// ORDER: stablehlo.while({{.*}}) : tensor<i32>, tensor<4x8xf32>, tensor<20x4x8xf32>
// ORDER-NOT: EX007

func.func @main(%start: tensor<4x8xf32>) -> (tensor<f32>, tensor<4x8xf32>) {
  %n = stablehlo.constant dense<20> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<20x4x8xf32>
  %loop:3 = stablehlo.while(%i = %c0, %h = %start, %stack = %zeros) : tensor<i32>, tensor<4x8xf32>, tensor<20x4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.sine %h : tensor<4x8xf32>
    %row = stablehlo.reshape %next : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %written = stablehlo.dynamic_update_slice %stack, %row, %i, %c0, %c0 : (tensor<20x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<20x4x8xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next, %written : tensor<i32>, tensor<4x8xf32>, tensor<20x4x8xf32>
  }
  %squares = stablehlo.multiply %loop#2, %loop#2 : tensor<20x4x8xf32>
  %sum = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<20x4x8xf32>, tensor<f32>) -> tensor<f32>
  %most = stablehlo.reduce(%loop#2 init: %least) applies stablehlo.maximum across dimensions = [0] : (tensor<20x4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %sum, %most : tensor<f32>, tensor<4x8xf32>
}
