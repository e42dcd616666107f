// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=1KB --remarks=missed -o /dev/null 2>&1 | filecheck %s

// The reader asks which elements are equal to their maximum, which is stored as well.

// CHECK: {{.*}}:19:10: remark: 16x4x8xf32 {{.*}} not recomputed: a comparison for equality would need its exact bits, which jax.checkpoint does not keep either (stablehlo.dynamic_slice at
// CHECK-NOT: remark

func.func @main(%w: tensor<8x8xf32>, %start: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %n = stablehlo.constant dense<16> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<16x4x8xf32>
  %forward:4 = stablehlo.while(%i = %c0, %h = %start, %sines = %zeros, %cosines = %zeros) : tensor<i32>, tensor<4x8xf32>, tensor<16x4x8xf32>, tensor<16x4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %s = stablehlo.sine %h : tensor<4x8xf32>
    %c = stablehlo.cosine %h : tensor<4x8xf32>
    %next = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s1 = stablehlo.reshape %s : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %c1 = stablehlo.reshape %c : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %sines_next = stablehlo.dynamic_update_slice %sines, %s1, %i, %c0, %c0 : (tensor<16x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<16x4x8xf32>
    %cosines_next = stablehlo.dynamic_update_slice %cosines, %c1, %i, %c0, %c0 : (tensor<16x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<16x4x8xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next, %sines_next, %cosines_next : tensor<i32>, tensor<4x8xf32>, tensor<16x4x8xf32>, tensor<16x4x8xf32>
  }
  %backward:2 = stablehlo.while(%j = %c0, %g = %forward#1) : tensor<i32>, tensor<4x8xf32>
  cond {
    %more = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %left = stablehlo.subtract %n, %j : tensor<i32>
    %mirrored = stablehlo.subtract %left, %one : tensor<i32>
    %s1 = stablehlo.dynamic_slice %forward#2, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<16x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %s = stablehlo.reshape %s1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %gw = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %minus = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %most = stablehlo.reduce(%s init: %minus) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %spread = stablehlo.broadcast_in_dim %most, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
    %is_most = stablehlo.compare EQ, %s, %spread : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
    %number = stablehlo.convert %is_most : (tensor<4x8xi1>) -> tensor<4x8xf32>
    %g_next = stablehlo.add %gw, %number : tensor<4x8xf32>
    %j_next = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %j_next, %g_next : tensor<i32>, tensor<4x8xf32>
  }
  return %backward#1 : tensor<4x8xf32>
}
