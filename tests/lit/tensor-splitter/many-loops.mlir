// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=4KB --split-size=2KB --remarks=missed 2>&1 | filecheck %s

// Fourteen rounds of sums over rows and then over columns, each of which needs those before: fourteen loops or more, one
// after the other. Each computes the costs again and one round of what is made of them: little more than before.

// CHECK-NOT: EX308
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh

func.func @main(%a: tensor<64x4xf32>, %b: tensor<48x4xf32>, %g0: tensor<48xf32>) -> tensor<48xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %cost = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<64x4xf32>, tensor<48x4xf32>) -> tensor<64x48xf32>
  %b0 = stablehlo.broadcast_in_dim %g0, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p0 = stablehlo.subtract %b0, %cost : tensor<64x48xf32>
  %e0 = stablehlo.tanh %p0 : tensor<64x48xf32>
  %f0 = stablehlo.reduce(%e0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c0 = stablehlo.broadcast_in_dim %f0, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q0 = stablehlo.subtract %c0, %cost : tensor<64x48xf32>
  %h0 = stablehlo.tanh %q0 : tensor<64x48xf32>
  %g1 = stablehlo.reduce(%h0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b1 = stablehlo.broadcast_in_dim %g1, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p1 = stablehlo.subtract %b1, %cost : tensor<64x48xf32>
  %e1 = stablehlo.tanh %p1 : tensor<64x48xf32>
  %f1 = stablehlo.reduce(%e1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c1 = stablehlo.broadcast_in_dim %f1, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q1 = stablehlo.subtract %c1, %cost : tensor<64x48xf32>
  %h1 = stablehlo.tanh %q1 : tensor<64x48xf32>
  %g2 = stablehlo.reduce(%h1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b2 = stablehlo.broadcast_in_dim %g2, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p2 = stablehlo.subtract %b2, %cost : tensor<64x48xf32>
  %e2 = stablehlo.tanh %p2 : tensor<64x48xf32>
  %f2 = stablehlo.reduce(%e2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c2 = stablehlo.broadcast_in_dim %f2, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q2 = stablehlo.subtract %c2, %cost : tensor<64x48xf32>
  %h2 = stablehlo.tanh %q2 : tensor<64x48xf32>
  %g3 = stablehlo.reduce(%h2 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b3 = stablehlo.broadcast_in_dim %g3, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p3 = stablehlo.subtract %b3, %cost : tensor<64x48xf32>
  %e3 = stablehlo.tanh %p3 : tensor<64x48xf32>
  %f3 = stablehlo.reduce(%e3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c3 = stablehlo.broadcast_in_dim %f3, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q3 = stablehlo.subtract %c3, %cost : tensor<64x48xf32>
  %h3 = stablehlo.tanh %q3 : tensor<64x48xf32>
  %g4 = stablehlo.reduce(%h3 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b4 = stablehlo.broadcast_in_dim %g4, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p4 = stablehlo.subtract %b4, %cost : tensor<64x48xf32>
  %e4 = stablehlo.tanh %p4 : tensor<64x48xf32>
  %f4 = stablehlo.reduce(%e4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c4 = stablehlo.broadcast_in_dim %f4, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q4 = stablehlo.subtract %c4, %cost : tensor<64x48xf32>
  %h4 = stablehlo.tanh %q4 : tensor<64x48xf32>
  %g5 = stablehlo.reduce(%h4 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b5 = stablehlo.broadcast_in_dim %g5, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p5 = stablehlo.subtract %b5, %cost : tensor<64x48xf32>
  %e5 = stablehlo.tanh %p5 : tensor<64x48xf32>
  %f5 = stablehlo.reduce(%e5 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c5 = stablehlo.broadcast_in_dim %f5, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q5 = stablehlo.subtract %c5, %cost : tensor<64x48xf32>
  %h5 = stablehlo.tanh %q5 : tensor<64x48xf32>
  %g6 = stablehlo.reduce(%h5 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b6 = stablehlo.broadcast_in_dim %g6, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p6 = stablehlo.subtract %b6, %cost : tensor<64x48xf32>
  %e6 = stablehlo.tanh %p6 : tensor<64x48xf32>
  %f6 = stablehlo.reduce(%e6 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c6 = stablehlo.broadcast_in_dim %f6, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q6 = stablehlo.subtract %c6, %cost : tensor<64x48xf32>
  %h6 = stablehlo.tanh %q6 : tensor<64x48xf32>
  %g7 = stablehlo.reduce(%h6 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b7 = stablehlo.broadcast_in_dim %g7, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p7 = stablehlo.subtract %b7, %cost : tensor<64x48xf32>
  %e7 = stablehlo.tanh %p7 : tensor<64x48xf32>
  %f7 = stablehlo.reduce(%e7 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c7 = stablehlo.broadcast_in_dim %f7, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q7 = stablehlo.subtract %c7, %cost : tensor<64x48xf32>
  %h7 = stablehlo.tanh %q7 : tensor<64x48xf32>
  %g8 = stablehlo.reduce(%h7 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b8 = stablehlo.broadcast_in_dim %g8, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p8 = stablehlo.subtract %b8, %cost : tensor<64x48xf32>
  %e8 = stablehlo.tanh %p8 : tensor<64x48xf32>
  %f8 = stablehlo.reduce(%e8 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c8 = stablehlo.broadcast_in_dim %f8, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q8 = stablehlo.subtract %c8, %cost : tensor<64x48xf32>
  %h8 = stablehlo.tanh %q8 : tensor<64x48xf32>
  %g9 = stablehlo.reduce(%h8 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b9 = stablehlo.broadcast_in_dim %g9, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p9 = stablehlo.subtract %b9, %cost : tensor<64x48xf32>
  %e9 = stablehlo.tanh %p9 : tensor<64x48xf32>
  %f9 = stablehlo.reduce(%e9 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c9 = stablehlo.broadcast_in_dim %f9, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q9 = stablehlo.subtract %c9, %cost : tensor<64x48xf32>
  %h9 = stablehlo.tanh %q9 : tensor<64x48xf32>
  %g10 = stablehlo.reduce(%h9 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b10 = stablehlo.broadcast_in_dim %g10, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p10 = stablehlo.subtract %b10, %cost : tensor<64x48xf32>
  %e10 = stablehlo.tanh %p10 : tensor<64x48xf32>
  %f10 = stablehlo.reduce(%e10 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c10 = stablehlo.broadcast_in_dim %f10, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q10 = stablehlo.subtract %c10, %cost : tensor<64x48xf32>
  %h10 = stablehlo.tanh %q10 : tensor<64x48xf32>
  %g11 = stablehlo.reduce(%h10 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b11 = stablehlo.broadcast_in_dim %g11, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p11 = stablehlo.subtract %b11, %cost : tensor<64x48xf32>
  %e11 = stablehlo.tanh %p11 : tensor<64x48xf32>
  %f11 = stablehlo.reduce(%e11 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c11 = stablehlo.broadcast_in_dim %f11, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q11 = stablehlo.subtract %c11, %cost : tensor<64x48xf32>
  %h11 = stablehlo.tanh %q11 : tensor<64x48xf32>
  %g12 = stablehlo.reduce(%h11 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b12 = stablehlo.broadcast_in_dim %g12, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p12 = stablehlo.subtract %b12, %cost : tensor<64x48xf32>
  %e12 = stablehlo.tanh %p12 : tensor<64x48xf32>
  %f12 = stablehlo.reduce(%e12 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c12 = stablehlo.broadcast_in_dim %f12, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q12 = stablehlo.subtract %c12, %cost : tensor<64x48xf32>
  %h12 = stablehlo.tanh %q12 : tensor<64x48xf32>
  %g13 = stablehlo.reduce(%h12 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b13 = stablehlo.broadcast_in_dim %g13, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p13 = stablehlo.subtract %b13, %cost : tensor<64x48xf32>
  %e13 = stablehlo.tanh %p13 : tensor<64x48xf32>
  %f13 = stablehlo.reduce(%e13 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %c13 = stablehlo.broadcast_in_dim %f13, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %q13 = stablehlo.subtract %c13, %cost : tensor<64x48xf32>
  %h13 = stablehlo.tanh %q13 : tensor<64x48xf32>
  %g14 = stablehlo.reduce(%h13 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  return %g14 : tensor<48xf32>
}
