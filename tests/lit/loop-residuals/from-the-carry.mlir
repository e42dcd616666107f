// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=2050B | filecheck %s

// A sine and a cosine of the carry are stored for the loop that goes backwards: the carry is, and both are
// computed from it. The product of matrices is not repeated.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %{{.*}}: tensor<8x8xf32>, %[[START:.*]]: tensor<4x8xf32>)
// CHECK: %[[FORWARD:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[H:.*]] = %[[START]], %[[STACK:.*]] = %{{.*}}) : tensor<i32>, tensor<4x8xf32>, tensor<16x4x8xf32>
// CHECK: %[[ROW:.*]] = stablehlo.reshape %[[H]] : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
// CHECK: stablehlo.dynamic_update_slice %[[STACK]], %[[ROW]], %[[I]], %{{.*}}, %{{.*}} :
// CHECK: stablehlo.while
// CHECK: %[[STEP:.*]] = stablehlo.subtract %{{.*}}, %{{.*}} : tensor<i32>
// CHECK: %[[MIRRORED:.*]] = stablehlo.subtract %[[STEP]], %{{.*}} : tensor<i32>
// CHECK: %[[SLICE:.*]] = stablehlo.dynamic_slice %[[FORWARD]]#2, %[[MIRRORED]],
// CHECK: %[[CARRY:.*]] = stablehlo.reshape %[[SLICE]]
// CHECK: stablehlo.sine %[[CARRY]]
// CHECK: stablehlo.cosine %[[CARRY]]
// CHECK-NOT: dynamic_slice
// CHECK: return

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
  return %backward#1 : tensor<4x8xf32>
}
