// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=10KB | filecheck %s

// What the steps store goes, computed again, into a pad: a CPU would compute the cosine at each place that is read. The
// steps of a segment store it, though the carries of all steps would be small enough to be stored.

// CHECK: %[[FORWARD:.*]]:3 = stablehlo.while({{.*}}) : tensor<i32>, tensor<4x8xf32>, tensor<17x4x8xf32>
// CHECK: %[[AGAIN:.*]]:4 = stablehlo.while({{.*}}) : tensor<4x8xf32>, tensor<4x4x8xf32>, tensor<4x4x8xf32>, tensor<i32>
// CHECK: stablehlo.cosine
// CHECK: stablehlo.while(
// CHECK: stablehlo.dynamic_slice %[[AGAIN]]#2,
// CHECK-NOT: stablehlo.cosine
// CHECK: stablehlo.pad

func.func @main(%start: tensor<4x8xf32>) -> tensor<4x8xf32> {
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
    %next = stablehlo.add %s, %h : tensor<4x8xf32>
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
    %gc = stablehlo.multiply %g, %c : tensor<4x8xf32>
    %gs = stablehlo.multiply %g, %s : tensor<4x8xf32>
    %most = stablehlo.slice %gc [0:4, 0:7] : (tensor<4x8xf32>) -> tensor<4x7xf32>
    %shifted = stablehlo.pad %most, %zero, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<4x7xf32>, tensor<f32>) -> tensor<4x8xf32>
    %g_next = stablehlo.add %gs, %shifted : tensor<4x8xf32>
    %j_next = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %j_next, %g_next : tensor<i32>, tensor<4x8xf32>
  }
  return %backward#1 : tensor<4x8xf32>
}
