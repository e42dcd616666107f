// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB | filecheck %s

// A sum over a product of repeated tensors is a dot.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<100x40xf64>, %[[B:[^:]*]]: tensor<40x80xf64>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A]], %[[B]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<100x80xf64>
// CHECK: return %[[DOT]]

func.func @main(%a: tensor<100x40xf64>, %b: tensor<40x80xf64>) -> tensor<100x80xf64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 1] : (tensor<100x40xf64>) -> tensor<100x40x80xf64>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<40x80xf64>) -> tensor<100x40x80xf64>
  %2 = stablehlo.multiply %0, %1 : tensor<100x40x80xf64>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<100x40x80xf64>, tensor<f64>) -> tensor<100x80xf64>
  return %3 : tensor<100x80xf64>
}
