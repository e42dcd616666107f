// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=5KB | filecheck %s

// Of 64 steps the first of each segment of four is stored. A loop over the segments, from the last one back, runs the steps
// of one again and stores what they compute, which is small enough; then the loop that reads goes over them.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[FORWARD:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[H:.*]] = %{{.*}}, %[[STARTS:.*]] = %{{.*}}) : tensor<i32>, tensor<4x8xf32>, tensor<17x4x8xf32>
// CHECK: stablehlo.add %[[I]], %{{.*}} : tensor<i32>
// CHECK: %[[AHEAD:.*]] = stablehlo.add %[[I]], %{{.*}} : tensor<i32>
// CHECK: %[[SEGMENT:.*]] = stablehlo.divide %[[AHEAD]], %{{.*}} : tensor<i32>
// CHECK: stablehlo.dynamic_update_slice %[[STARTS]], %{{.*}}, %[[SEGMENT]],
// CHECK: %{{.*}} = stablehlo.while(%[[NUMBER:.*]] = %{{.*}}, %{{.*}} = %[[FORWARD]]#1) : tensor<i32>, tensor<4x8xf32>
// CHECK: %[[BACK:.*]] = stablehlo.subtract %{{.*}}, %[[NUMBER]] : tensor<i32>
// CHECK: %[[START:.*]] = stablehlo.dynamic_slice %[[FORWARD]]#2, %[[BACK]],
// CHECK: %[[FIRST:.*]] = stablehlo.reshape %[[START]]
// CHECK: %[[AGAIN:.*]]:4 = stablehlo.while(%{{.*}} = %[[FIRST]], %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<4x8xf32>, tensor<4x4x8xf32>, tensor<4x4x8xf32>, tensor<i32>
// CHECK: stablehlo.while(
// CHECK: stablehlo.dynamic_slice %[[AGAIN]]#2,
// CHECK: stablehlo.dynamic_slice %[[AGAIN]]#1,

func.func @main(%w: tensor<8x8xf32>, %start: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %n = stablehlo.constant dense<64> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<64x4x8xf32>
  %forward:4 = stablehlo.while(%i = %c0, %h = %start, %sines = %zeros, %cosines = %zeros) : tensor<i32>, tensor<4x8xf32>, tensor<64x4x8xf32>, tensor<64x4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %s = stablehlo.sine %h : tensor<4x8xf32>
    %c = stablehlo.cosine %h : tensor<4x8xf32>
    %next = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s1 = stablehlo.reshape %s : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %c1 = stablehlo.reshape %c : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %sines_next = stablehlo.dynamic_update_slice %sines, %s1, %i, %c0, %c0 : (tensor<64x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<64x4x8xf32>
    %cosines_next = stablehlo.dynamic_update_slice %cosines, %c1, %i, %c0, %c0 : (tensor<64x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<64x4x8xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next, %sines_next, %cosines_next : tensor<i32>, tensor<4x8xf32>, tensor<64x4x8xf32>, tensor<64x4x8xf32>
  }
  %backward:2 = stablehlo.while(%j = %c0, %g = %forward#1) : tensor<i32>, tensor<4x8xf32>
  cond {
    %more = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %left = stablehlo.subtract %n, %j : tensor<i32>
    %mirrored = stablehlo.subtract %left, %one : tensor<i32>
    %c1 = stablehlo.dynamic_slice %forward#3, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<64x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %c = stablehlo.reshape %c1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %s1 = stablehlo.dynamic_slice %forward#2, %mirrored, %c0, %c0, sizes = [1, 4, 8] : (tensor<64x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %s = stablehlo.reshape %s1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %gw = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %gc = stablehlo.multiply %gw, %c : tensor<4x8xf32>
    %g_next = stablehlo.add %gc, %s : tensor<4x8xf32>
    %j_next = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %j_next, %g_next : tensor<i32>, tensor<4x8xf32>
  }
  return %backward#1 : tensor<4x8xf32>
}
