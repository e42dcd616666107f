// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=1KB --remarks=missed -o /dev/null 2>&1 | filecheck %s

// Only the carry itself is stored, for too few steps to cut them into segments.

// CHECK: {{.*}}:20:13: remark: 8x4x8xf32 {{.*}} not recomputed: storing what it is computed from takes as much memory; jax.checkpoint around several steps needs less
// CHECK-NOT: remark

func.func @main(%w: tensor<8x8xf32>, %start: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %n = stablehlo.constant dense<8> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8x4x8xf32>
  %forward:4 = stablehlo.while(%i = %c0, %h = %start, %sines = %zeros, %cosines = %zeros) : tensor<i32>, tensor<4x8xf32>, tensor<8x4x8xf32>, tensor<8x4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %s = stablehlo.sine %h : tensor<4x8xf32>
    %next = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s1 = stablehlo.reshape %h : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %sines_next = stablehlo.dynamic_update_slice %sines, %s1, %i, %c0, %c0 : (tensor<8x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x4x8xf32>
    %cosines_next = stablehlo.dynamic_update_slice %cosines, %s1, %i, %c0, %c0 : (tensor<8x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x4x8xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next, %sines_next, %cosines_next : tensor<i32>, tensor<4x8xf32>, tensor<8x4x8xf32>, tensor<8x4x8xf32>
  }
  %backward:2 = stablehlo.while(%j = %c0, %g = %forward#1) : tensor<i32>, tensor<4x8xf32>
  cond {
    %more = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %left = stablehlo.subtract %n, %j : tensor<i32>
    %mirrored = stablehlo.subtract %left, %one : tensor<i32>
    %c1 = stablehlo.dynamic_slice %forward#2, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<8x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %c = stablehlo.reshape %c1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %s1 = stablehlo.dynamic_slice %forward#2, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<8x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %s = stablehlo.reshape %s1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %gw = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %gc = stablehlo.multiply %gw, %c : tensor<4x8xf32>
    %g_next = stablehlo.add %gc, %s : tensor<4x8xf32>
    %j_next = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %j_next, %g_next : tensor<i32>, tensor<4x8xf32>
  }
  return %backward#1 : tensor<4x8xf32>
}
