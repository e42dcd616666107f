// RUN: %exla-opt %s --passes=reused-products --size-threshold=64KB | filecheck %s

// No product that is there holds a part of these sums: other values, the values turned, another factor in each term, a
// mask that the product has not, a product that divides by what the sum does not.

// CHECK-COUNT-5: stablehlo.reduce({{.*}} across dimensions = [1] : (tensor<160x160xf32>,

func.func @main(%p: tensor<160x160xf32>, %mask: tensor<160x160xi1>, %v: tensor<160x160xf32>, %w: tensor<160x160xf32>, %g: tensor<160x8xf32>, %b: tensor<160x8xf32>, %s: tensor<160xf32>) -> (tensor<160x8xf32>, tensor<160x8xf32>, tensor<160x160xf32>, tensor<160xf32>, tensor<160xf32>, tensor<160xf32>, tensor<160xf32>, tensor<160xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<160x160xf32>
  %s_ij = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<160xf32>) -> tensor<160x160xf32>
  %q = stablehlo.divide %w, %s_ij : tensor<160x160xf32>
  %o = stablehlo.dot_general %p, %b, contracting_dims = [1] x [0] : (tensor<160x160xf32>, tensor<160x8xf32>) -> tensor<160x8xf32>
  %o_q = stablehlo.dot_general %q, %b, contracting_dims = [1] x [0] : (tensor<160x160xf32>, tensor<160x8xf32>) -> tensor<160x8xf32>
  %c = stablehlo.add %b, %b : tensor<160x8xf32>
  %dc = stablehlo.dot_general %g, %c, contracting_dims = [1] x [1] : (tensor<160x8xf32>, tensor<160x8xf32>) -> tensor<160x160xf32>
  %db = stablehlo.dot_general %g, %b, contracting_dims = [1] x [1] : (tensor<160x8xf32>, tensor<160x8xf32>) -> tensor<160x160xf32>
  %turned = stablehlo.transpose %p, dims = [1, 0] : (tensor<160x160xf32>) -> tensor<160x160xf32>
  %0 = stablehlo.multiply %dc, %p : tensor<160x160xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<160x160xf32>, tensor<f32>) -> tensor<160xf32>
  %2 = stablehlo.multiply %db, %turned : tensor<160x160xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<160x160xf32>, tensor<f32>) -> tensor<160xf32>
  %4 = stablehlo.multiply %db, %p : tensor<160x160xf32>
  %5 = stablehlo.multiply %4, %v : tensor<160x160xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<160x160xf32>, tensor<f32>) -> tensor<160xf32>
  %7 = stablehlo.select %mask, %4, %zeros : tensor<160x160xi1>, tensor<160x160xf32>
  %8 = stablehlo.reduce(%7 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<160x160xf32>, tensor<f32>) -> tensor<160xf32>
  %9 = stablehlo.multiply %db, %w : tensor<160x160xf32>
  %10 = stablehlo.reduce(%9 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<160x160xf32>, tensor<f32>) -> tensor<160xf32>
  return %o, %o_q, %db, %1, %3, %6, %8, %10 : tensor<160x8xf32>, tensor<160x8xf32>, tensor<160x160xf32>, tensor<160xf32>, tensor<160xf32>, tensor<160xf32>, tensor<160xf32>, tensor<160xf32>
}
