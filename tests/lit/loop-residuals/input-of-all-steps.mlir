// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=2KB --remarks=passed 2>&1 | filecheck %s

// One matrix is repeated for all steps, and a function of the inputs is made for all of them: each step makes its own.

// CHECK-NOT: -> tensor<16x8x8xf32>
// CHECK: stablehlo.while(
// CHECK-DAG: %[[ROWS:.*]] = stablehlo.dynamic_slice %arg0, %{{.*}}, %{{.*}}, %{{.*}}, sizes = [1, 8, 8]
// CHECK-DAG: stablehlo.cosine %[[ROWS]] : tensor<1x8x8xf32>
// CHECK-DAG: stablehlo.multiply %{{.*}}, %{{.*}} : tensor<1x8x8xf32>
// CHECK-DAG: stablehlo.dot_general %{{.*}}, %arg1, contracting_dims = [1] x [0]
// CHECK-COUNT-3: computed by each step that reads it: 16 steps are not computed beforehand [loop-residuals, EX006]

func.func @main(%x: tensor<16x8x8xf32>, %w: tensor<8x8xf32>, %start: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %n = stablehlo.constant dense<16> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %threes = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<16x8x8xf32>
  %cos = stablehlo.cosine %x : tensor<16x8x8xf32>
  %inputs = stablehlo.multiply %cos, %threes : tensor<16x8x8xf32>
  %all = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<8x8xf32>) -> tensor<16x8x8xf32>
  %loop:2 = stablehlo.while(%i = %c0, %h = %start) : tensor<i32>, tensor<8x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %inputs, %i, %c0, %c0, sizes = [1, 8, 8] : (tensor<16x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
    %row = stablehlo.reshape %0 : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.dynamic_slice %all, %i, %c0, %c0, sizes = [1, 8, 8] : (tensor<16x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
    %matrix = stablehlo.reshape %1 : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
    %2 = stablehlo.dot_general %h, %matrix, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %next = stablehlo.add %2, %row : tensor<8x8xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next : tensor<i32>, tensor<8x8xf32>
  }
  return %loop#1 : tensor<8x8xf32>
}
