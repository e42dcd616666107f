// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=1KB --remarks=missed -o /dev/null 2>&1 | filecheck %s

// The program of one of two devices. Recomputed, the sines would be gathered from the other device once more.

// CHECK: {{.*}}:21:10: remark: 16x4x8xf32 {{.*}} not recomputed: an op would communicate again, and its result is as big (stablehlo.all_gather at {{.*}}:20:17)
// CHECK-NOT: remark

func.func @main(%ws: tensor<16x2x8xf32>, %start: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %n = stablehlo.constant dense<16> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<16x4x8xf32>
  %forward:3 = stablehlo.while(%i = %c0, %h = %start, %sines = %zeros) : tensor<i32>, tensor<4x8xf32>, tensor<16x4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %w1 = stablehlo.dynamic_slice %ws, %i, %c0, %c0, sizes = [1, 2, 8] : (tensor<16x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
    %w = stablehlo.reshape %w1 : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
    %gathered = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xf32>) -> tensor<4x8xf32>
    %s = stablehlo.sine %gathered : tensor<4x8xf32>
    %next = stablehlo.multiply %h, %s : tensor<4x8xf32>
    %s1 = stablehlo.reshape %s : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
    %sines_next = stablehlo.dynamic_update_slice %sines, %s1, %i, %c0, %c0 : (tensor<16x4x8xf32>, tensor<1x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<16x4x8xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next, %sines_next : tensor<i32>, tensor<4x8xf32>, tensor<16x4x8xf32>
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
    %g_next = stablehlo.multiply %g, %s : tensor<4x8xf32>
    %j_next = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %j_next, %g_next : tensor<i32>, tensor<4x8xf32>
  }
  return %backward#1 : tensor<4x8xf32>
}
