// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=1.25MB -o %t --remarks=passed 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: cat %t | filecheck %s
// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=2MB -o - | filecheck %s --check-prefix=ENOUGH

// The body of a loop over two tiles holds the forward and the backward part of six layers: the peak is in there, and so are the
// copies, each in a loop of one trip that waits for the gradient in the same step. What the body reads of the outside, the weight,
// comes out of the barrier like all that a segment reads.

// REMARK: remark: {{.*}}4096x8xf32{{.*}}recomputed before it is read again

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[W:.*]]: tensor<8x8xf32>, %[[X:.*]]: tensor<2x4096x8xf32>)
// CHECK: stablehlo.while
// CHECK: do {
// CHECK: stablehlo.bitcast_convert %{{.*}} : (tensor<f32>) -> tensor<i32>
// CHECK: %[[THERE:.*]] = stablehlo.compare NE
// CHECK: %[[READ:.*]] = stablehlo.compare NE
// CHECK: %[[ALWAYS:.*]] = stablehlo.and %[[THERE]], %[[READ]]
// CHECK: %[[TRIPS:.*]] = stablehlo.convert %[[ALWAYS]] : (tensor<i1>) -> tensor<i32>
// CHECK: %[[AGAIN:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>, tensor<4096x8xf32>
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]]
// CHECK: %[[HELD:.*]]:3 = stablehlo.optimization_barrier %{{.*}}, %[[W]], %[[I]]
// CHECK: stablehlo.dot_general %[[HELD]]#0, %[[HELD]]#1
// CHECK: stablehlo.tanh
// CHECK: stablehlo.multiply %[[AGAIN]]#1, %[[AGAIN]]#1

// ENOUGH: stablehlo.while
// ENOUGH-NOT: stablehlo.while

func.func @main(%w: tensor<8x8xf32>, %tiles: tensor<2x4096x8xf32>) -> tensor<8x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %step = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<2> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<8x8xf32>
  %loop:2 = stablehlo.while(%i = %zero, %total = %start) : tensor<i32>, tensor<8x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }
  do {
    %one = stablehlo.constant dense<1.0> : tensor<4096x8xf32>
    %tile = stablehlo.dynamic_slice %tiles, %i, %zero, %zero, sizes = [1, 4096, 8] : (tensor<2x4096x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4096x8xf32>
    %h0 = stablehlo.reshape %tile : (tensor<1x4096x8xf32>) -> tensor<4096x8xf32>
    %x1 = stablehlo.dot_general %h0, %w, contracting_dims = [1] x [0] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %h1 = stablehlo.tanh %x1 : tensor<4096x8xf32>
    %x2 = stablehlo.dot_general %h1, %w, contracting_dims = [1] x [0] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %h2 = stablehlo.tanh %x2 : tensor<4096x8xf32>
    %x3 = stablehlo.dot_general %h2, %w, contracting_dims = [1] x [0] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %h3 = stablehlo.tanh %x3 : tensor<4096x8xf32>
    %x4 = stablehlo.dot_general %h3, %w, contracting_dims = [1] x [0] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %h4 = stablehlo.tanh %x4 : tensor<4096x8xf32>
    %x5 = stablehlo.dot_general %h4, %w, contracting_dims = [1] x [0] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %h5 = stablehlo.tanh %x5 : tensor<4096x8xf32>
    %x6 = stablehlo.dot_general %h5, %w, contracting_dims = [1] x [0] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %h6 = stablehlo.tanh %x6 : tensor<4096x8xf32>
    %s6 = stablehlo.multiply %h6, %h6 : tensor<4096x8xf32>
    %d6 = stablehlo.subtract %one, %s6 : tensor<4096x8xf32>
    %e6 = stablehlo.multiply %h6, %d6 : tensor<4096x8xf32>
    %g6 = stablehlo.dot_general %e6, %w, contracting_dims = [1] x [1] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %s5 = stablehlo.multiply %h5, %h5 : tensor<4096x8xf32>
    %d5 = stablehlo.subtract %one, %s5 : tensor<4096x8xf32>
    %e5 = stablehlo.multiply %g6, %d5 : tensor<4096x8xf32>
    %g5 = stablehlo.dot_general %e5, %w, contracting_dims = [1] x [1] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %s4 = stablehlo.multiply %h4, %h4 : tensor<4096x8xf32>
    %d4 = stablehlo.subtract %one, %s4 : tensor<4096x8xf32>
    %e4 = stablehlo.multiply %g5, %d4 : tensor<4096x8xf32>
    %g4 = stablehlo.dot_general %e4, %w, contracting_dims = [1] x [1] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %s3 = stablehlo.multiply %h3, %h3 : tensor<4096x8xf32>
    %d3 = stablehlo.subtract %one, %s3 : tensor<4096x8xf32>
    %e3 = stablehlo.multiply %g4, %d3 : tensor<4096x8xf32>
    %g3 = stablehlo.dot_general %e3, %w, contracting_dims = [1] x [1] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %s2 = stablehlo.multiply %h2, %h2 : tensor<4096x8xf32>
    %d2 = stablehlo.subtract %one, %s2 : tensor<4096x8xf32>
    %e2 = stablehlo.multiply %g3, %d2 : tensor<4096x8xf32>
    %g2 = stablehlo.dot_general %e2, %w, contracting_dims = [1] x [1] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
    %s1 = stablehlo.multiply %h1, %h1 : tensor<4096x8xf32>
    %d1 = stablehlo.subtract %one, %s1 : tensor<4096x8xf32>
    %e1 = stablehlo.multiply %g2, %d1 : tensor<4096x8xf32>
    %dw = stablehlo.dot_general %h0, %e1, contracting_dims = [0] x [0] : (tensor<4096x8xf32>, tensor<4096x8xf32>) -> tensor<8x8xf32>
    %sum = stablehlo.add %total, %dw : tensor<8x8xf32>
    %next = stablehlo.add %i, %step : tensor<i32>
    stablehlo.return %next, %sum : tensor<i32>, tensor<8x8xf32>
  }
  return %loop#1 : tensor<8x8xf32>
}
