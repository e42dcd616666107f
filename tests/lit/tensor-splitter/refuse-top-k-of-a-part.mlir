// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=256 --split-size=240 --remarks=missed 2>&1 | filecheck %s

// The first slices of the dot hold nothing of what the top-k reads. Its own first slice must have as many numbers as it takes,
// or the best of less would be merged with what the loop starts from.

// CHECK: chlo.top_k(%{{.*}}, k = 6) : tensor<65xf64>
// CHECK: {{.*}}refuse-top-k-of-a-part.mlir:{{.*}}: remark: 81xf64 (648B) not split: chlo.top_k needs longer tiles

func.func @main(%a: tensor<81x3xf64>, %b: tensor<3xf64>) -> (tensor<6xf64>, tensor<6xi32>, tensor<f64>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<81x3xf64>, tensor<3xf64>) -> tensor<81xf64>
  %1 = stablehlo.slice %0 [16:81] : (tensor<81xf64>) -> tensor<65xf64>
  %2 = stablehlo.abs %1 : tensor<65xf64>
  %3 = stablehlo.negate %2 : tensor<65xf64>
  %values, %indices = chlo.top_k(%3, k = 6) : tensor<65xf64> -> (tensor<6xf64>, tensor<6xi32>)
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %4 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<81xf64>, tensor<f64>) -> tensor<f64>
  return %values, %indices, %4 : tensor<6xf64>, tensor<6xi32>, tensor<f64>
}
