// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=980KB -o %t --remarks=passed 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: cat %t | filecheck %s

// Six layers and their gradient, each tensor of 131 KB: six are alive at the peak. Some are computed again once the gradient
// has come near, in a loop of one trip that nobody can know to be one.

// REMARK: remark: {{.*}}4096x8xf32{{.*}}recomputed before it is read again

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[W:.*]]: tensor<8x8xf32>, %[[X:.*]]: tensor<4096x8xf32>)
// CHECK: %[[BITS:.*]] = stablehlo.bitcast_convert %{{.*}} : (tensor<f32>) -> tensor<i32>
// CHECK: %[[SOME:.*]] = stablehlo.or %[[BITS]], %{{.*}} : tensor<i32>
// CHECK: %[[THERE:.*]] = stablehlo.compare NE, %[[SOME]], %{{.*}}, SIGNED
// CHECK: %[[READ:.*]] = stablehlo.compare NE
// CHECK: %[[ALWAYS:.*]] = stablehlo.and %[[THERE]], %[[READ]]
// CHECK: %[[START:.*]] = stablehlo.convert %[[ALWAYS]] : (tensor<i1>) -> tensor<f32>
// CHECK: stablehlo.broadcast_in_dim %[[START]]
// CHECK: %[[TRIPS:.*]] = stablehlo.convert %[[ALWAYS]] : (tensor<i1>) -> tensor<i32>
// CHECK: %[[AGAIN:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>, tensor<4096x8xf32>
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]]
// CHECK: stablehlo.optimization_barrier
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.tanh
// CHECK: stablehlo.return
// CHECK: stablehlo.multiply %[[AGAIN]]#1, %[[AGAIN]]#1

func.func @main(%w: tensor<8x8xf32>, %h0: tensor<4096x8xf32>) -> tensor<4096x8xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<4096x8xf32>
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
  %g1 = stablehlo.dot_general %e1, %w, contracting_dims = [1] x [1] : (tensor<4096x8xf32>, tensor<8x8xf32>) -> tensor<4096x8xf32>
  return %g1 : tensor<4096x8xf32>
}
