// RUN: %exla-opt %s --passes=reused-products --size-threshold=16KB | filecheck %s

// A product of numbers that no float holds: the sum stays.

// CHECK: stablehlo.reduce({{.*}} across dimensions = [1] : (tensor<64x128xf64>

func.func @main(%p: tensor<64x128xf64>, %a: tensor<64x8xf64>, %b: tensor<128x8xf64>) -> (tensor<64x8xf64>, tensor<64xf64>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %small = stablehlo.constant dense<1.0e-200> : tensor<64x128xf64>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<64x8xf64>, tensor<128x8xf64>) -> tensor<64x128xf64>
  %1 = stablehlo.multiply %p, %small : tensor<64x128xf64>
  %2 = stablehlo.multiply %1, %small : tensor<64x128xf64>
  %3 = stablehlo.dot_general %2, %b, contracting_dims = [1] x [0] : (tensor<64x128xf64>, tensor<128x8xf64>) -> tensor<64x8xf64>
  %4 = stablehlo.multiply %0, %2 : tensor<64x128xf64>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x128xf64>, tensor<f64>) -> tensor<64xf64>
  return %3, %5 : tensor<64x8xf64>, tensor<64xf64>
}
