// RUN: %exla-opt %s --passes=symmetric-sums --size-threshold=64KB | filecheck %s

// Neither a triangle of a symmetric matrix is one, nor a matrix with other weights in every row, nor an argument.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-COUNT-6: stablehlo.reduce(
// CHECK-NOT: stablehlo.reduce(

func.func @main(%x: tensor<150xf32>, %v: tensor<150xf32>, %w: tensor<150x150xf32>)
    -> (tensor<150xf32>, tensor<150xf32>, tensor<150xf32>, tensor<150xf32>, tensor<150xf32>, tensor<150xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<150x150xf32>
  %x_i = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<150xf32>) -> tensor<150x150xf32>
  %x_j = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<150xf32>) -> tensor<150x150xf32>
  %0 = stablehlo.multiply %x_i, %x_j : tensor<150x150xf32>
  %i = stablehlo.iota dim = 0 : tensor<150x150xi32>
  %j = stablehlo.iota dim = 1 : tensor<150x150xi32>
  %1 = stablehlo.compare LT, %i, %j, SIGNED : (tensor<150x150xi32>, tensor<150x150xi32>) -> tensor<150x150xi1>
  %triangle = stablehlo.select %1, %0, %zeros : tensor<150x150xi1>, tensor<150x150xf32>
  %v_i = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<150xf32>) -> tensor<150x150xf32>
  %weighted = stablehlo.multiply %0, %v_i : tensor<150x150xf32>
  %2 = stablehlo.reduce(%triangle init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  %3 = stablehlo.reduce(%triangle init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  %4 = stablehlo.reduce(%weighted init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  %5 = stablehlo.reduce(%weighted init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  %6 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  %7 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<150x150xf32>, tensor<f32>) -> tensor<150xf32>
  return %2, %3, %4, %5, %6, %7 : tensor<150xf32>, tensor<150xf32>, tensor<150xf32>, tensor<150xf32>, tensor<150xf32>, tensor<150xf32>
}
