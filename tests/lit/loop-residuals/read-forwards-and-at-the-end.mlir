// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=2050B | filecheck %s

// One loop reads the stacks from the first step on, with an index that may be negative, and straight code the last step.

// CHECK: %[[FORWARD:.*]]:3 = stablehlo.while(
// CHECK: %[[AT:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<i1>, tensor<i32>
// CHECK: stablehlo.dynamic_slice %[[FORWARD]]#2, %[[AT]],
// CHECK: stablehlo.cosine
// CHECK: %[[LAST:.*]] = stablehlo.dynamic_slice %[[FORWARD]]#2, %{{.*}}, %{{.*}}, %{{.*}}, sizes = [1, 4, 8]
// CHECK: %[[CARRY:.*]] = stablehlo.reshape %[[LAST]]
// CHECK: stablehlo.sine %[[CARRY]]

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
    %behind = stablehlo.add %j, %n : tensor<i32>
    %negative = stablehlo.compare LT, %j, %c0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %mirrored = stablehlo.select %negative, %behind, %j : tensor<i1>, tensor<i32>
    %c1 = stablehlo.dynamic_slice %forward#3, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<16x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %c = stablehlo.reshape %c1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %s1 = stablehlo.dynamic_slice %forward#2, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<16x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %s = stablehlo.reshape %s1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %gw = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %gc = stablehlo.multiply %gw, %c : tensor<4x8xf32>
    %g_next = stablehlo.add %gc, %s : tensor<4x8xf32>
    %j_next = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %j_next, %g_next : tensor<i32>, tensor<4x8xf32>
  }
  %last1 = stablehlo.slice %forward#2 [15:16, 0:4, 0:8] : (tensor<16x4x8xf32>) -> tensor<1x4x8xf32>
  %last = stablehlo.reshape %last1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
  %both = stablehlo.add %backward#1, %last : tensor<4x8xf32>
  return %both : tensor<4x8xf32>
}
