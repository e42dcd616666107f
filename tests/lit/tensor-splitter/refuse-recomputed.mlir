// RUN: %exla-opt %s --passes=normalise,tensor-splitter --size-threshold=4KB --split-size=2KB --remarks=missed 2>&1 | filecheck %s

// Every round needs the sums of the one before, over rows and columns: a loop a round, which computes all rounds before it
// again.

// CHECK: refuse-recomputed.mlir:{{.*}}: remark: 64x48xf32 (12.3KB) not split: it would take 15 consecutive loops, which recompute most of it [tensor-splitter, EX308]

func.func @main(%a: tensor<64x48xf32>) -> tensor<48xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %x0 = stablehlo.exponential %a : tensor<64x48xf32>
  %s0 = stablehlo.reduce(%x0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m0 = stablehlo.reduce(%x0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b0 = stablehlo.broadcast_in_dim %s0, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c0 = stablehlo.broadcast_in_dim %m0, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p0 = stablehlo.add %b0, %c0 : tensor<64x48xf32>
  %q0 = stablehlo.subtract %x0, %p0 : tensor<64x48xf32>
  %x1 = stablehlo.sine %q0 : tensor<64x48xf32>
  %s1 = stablehlo.reduce(%x1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m1 = stablehlo.reduce(%x1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b1 = stablehlo.broadcast_in_dim %s1, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c1 = stablehlo.broadcast_in_dim %m1, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p1 = stablehlo.add %b1, %c1 : tensor<64x48xf32>
  %q1 = stablehlo.subtract %x1, %p1 : tensor<64x48xf32>
  %x2 = stablehlo.sine %q1 : tensor<64x48xf32>
  %s2 = stablehlo.reduce(%x2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m2 = stablehlo.reduce(%x2 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b2 = stablehlo.broadcast_in_dim %s2, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c2 = stablehlo.broadcast_in_dim %m2, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p2 = stablehlo.add %b2, %c2 : tensor<64x48xf32>
  %q2 = stablehlo.subtract %x2, %p2 : tensor<64x48xf32>
  %x3 = stablehlo.sine %q2 : tensor<64x48xf32>
  %s3 = stablehlo.reduce(%x3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m3 = stablehlo.reduce(%x3 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b3 = stablehlo.broadcast_in_dim %s3, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c3 = stablehlo.broadcast_in_dim %m3, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p3 = stablehlo.add %b3, %c3 : tensor<64x48xf32>
  %q3 = stablehlo.subtract %x3, %p3 : tensor<64x48xf32>
  %x4 = stablehlo.sine %q3 : tensor<64x48xf32>
  %s4 = stablehlo.reduce(%x4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m4 = stablehlo.reduce(%x4 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b4 = stablehlo.broadcast_in_dim %s4, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c4 = stablehlo.broadcast_in_dim %m4, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p4 = stablehlo.add %b4, %c4 : tensor<64x48xf32>
  %q4 = stablehlo.subtract %x4, %p4 : tensor<64x48xf32>
  %x5 = stablehlo.sine %q4 : tensor<64x48xf32>
  %s5 = stablehlo.reduce(%x5 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m5 = stablehlo.reduce(%x5 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b5 = stablehlo.broadcast_in_dim %s5, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c5 = stablehlo.broadcast_in_dim %m5, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p5 = stablehlo.add %b5, %c5 : tensor<64x48xf32>
  %q5 = stablehlo.subtract %x5, %p5 : tensor<64x48xf32>
  %x6 = stablehlo.sine %q5 : tensor<64x48xf32>
  %s6 = stablehlo.reduce(%x6 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m6 = stablehlo.reduce(%x6 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b6 = stablehlo.broadcast_in_dim %s6, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c6 = stablehlo.broadcast_in_dim %m6, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p6 = stablehlo.add %b6, %c6 : tensor<64x48xf32>
  %q6 = stablehlo.subtract %x6, %p6 : tensor<64x48xf32>
  %x7 = stablehlo.sine %q6 : tensor<64x48xf32>
  %s7 = stablehlo.reduce(%x7 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m7 = stablehlo.reduce(%x7 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b7 = stablehlo.broadcast_in_dim %s7, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c7 = stablehlo.broadcast_in_dim %m7, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p7 = stablehlo.add %b7, %c7 : tensor<64x48xf32>
  %q7 = stablehlo.subtract %x7, %p7 : tensor<64x48xf32>
  %x8 = stablehlo.sine %q7 : tensor<64x48xf32>
  %s8 = stablehlo.reduce(%x8 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m8 = stablehlo.reduce(%x8 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b8 = stablehlo.broadcast_in_dim %s8, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c8 = stablehlo.broadcast_in_dim %m8, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p8 = stablehlo.add %b8, %c8 : tensor<64x48xf32>
  %q8 = stablehlo.subtract %x8, %p8 : tensor<64x48xf32>
  %x9 = stablehlo.sine %q8 : tensor<64x48xf32>
  %s9 = stablehlo.reduce(%x9 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m9 = stablehlo.reduce(%x9 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b9 = stablehlo.broadcast_in_dim %s9, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c9 = stablehlo.broadcast_in_dim %m9, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p9 = stablehlo.add %b9, %c9 : tensor<64x48xf32>
  %q9 = stablehlo.subtract %x9, %p9 : tensor<64x48xf32>
  %x10 = stablehlo.sine %q9 : tensor<64x48xf32>
  %s10 = stablehlo.reduce(%x10 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m10 = stablehlo.reduce(%x10 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b10 = stablehlo.broadcast_in_dim %s10, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c10 = stablehlo.broadcast_in_dim %m10, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p10 = stablehlo.add %b10, %c10 : tensor<64x48xf32>
  %q10 = stablehlo.subtract %x10, %p10 : tensor<64x48xf32>
  %x11 = stablehlo.sine %q10 : tensor<64x48xf32>
  %s11 = stablehlo.reduce(%x11 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m11 = stablehlo.reduce(%x11 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b11 = stablehlo.broadcast_in_dim %s11, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c11 = stablehlo.broadcast_in_dim %m11, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p11 = stablehlo.add %b11, %c11 : tensor<64x48xf32>
  %q11 = stablehlo.subtract %x11, %p11 : tensor<64x48xf32>
  %x12 = stablehlo.sine %q11 : tensor<64x48xf32>
  %s12 = stablehlo.reduce(%x12 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m12 = stablehlo.reduce(%x12 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b12 = stablehlo.broadcast_in_dim %s12, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c12 = stablehlo.broadcast_in_dim %m12, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p12 = stablehlo.add %b12, %c12 : tensor<64x48xf32>
  %q12 = stablehlo.subtract %x12, %p12 : tensor<64x48xf32>
  %x13 = stablehlo.sine %q12 : tensor<64x48xf32>
  %s13 = stablehlo.reduce(%x13 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  %m13 = stablehlo.reduce(%x13 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  %b13 = stablehlo.broadcast_in_dim %s13, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
  %c13 = stablehlo.broadcast_in_dim %m13, dims = [1] : (tensor<48xf32>) -> tensor<64x48xf32>
  %p13 = stablehlo.add %b13, %c13 : tensor<64x48xf32>
  %q13 = stablehlo.subtract %x13, %p13 : tensor<64x48xf32>
  %x14 = stablehlo.sine %q13 : tensor<64x48xf32>
  %y = stablehlo.reduce(%x14 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x48xf32>, tensor<f32>) -> tensor<48xf32>
  return %y : tensor<48xf32>
}
