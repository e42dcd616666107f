// RUN: %exla-opt %s --passes=symmetric-sums --size-threshold=64KB --remarks=all 2>&1 | filecheck %s

// exp(-(x_i - x_j)^2) v_i v_j is the same with i and j exchanged: both of its products with b are one.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[BOTH:.*]] = stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [0]
// CHECK-NOT: stablehlo.dot_general
// CHECK: return %[[BOTH]], %[[BOTH]] :
// CHECK: gradient-of-a-kernel.mlir:{{.*}}: remark: 150x150xf32 (90KB) not summed again: an earlier sum is the same [symmetric-sums, EX011]

func.func @main(%x: tensor<150xf32>, %v: tensor<150xf32>, %b: tensor<150x4xf32>) -> (tensor<150x4xf32>, tensor<150x4xf32>) {
  %one = stablehlo.constant dense<1.0> : tensor<150xf32>
  %x_i = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<150xf32>) -> tensor<150x150xf32>
  %x_j = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<150xf32>) -> tensor<150x150xf32>
  %0 = stablehlo.subtract %x_i, %x_j : tensor<150x150xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<150x150xf32>
  %2 = stablehlo.negate %1 : tensor<150x150xf32>
  %3 = stablehlo.exponential %2 : tensor<150x150xf32>
  %4 = stablehlo.multiply %one, %v : tensor<150xf32>
  %v_i = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<150xf32>) -> tensor<150x150xf32>
  %v_j = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<150xf32>) -> tensor<150x150xf32>
  %5 = stablehlo.multiply %v_i, %v_j : tensor<150x150xf32>
  %w = stablehlo.multiply %5, %3 : tensor<150x150xf32>
  %6 = stablehlo.dot_general %w, %b, contracting_dims = [1] x [0] : (tensor<150x150xf32>, tensor<150x4xf32>) -> tensor<150x4xf32>
  %7 = stablehlo.dot_general %w, %b, contracting_dims = [0] x [0] : (tensor<150x150xf32>, tensor<150x4xf32>) -> tensor<150x4xf32>
  return %6, %7 : tensor<150x4xf32>, tensor<150x4xf32>
}
