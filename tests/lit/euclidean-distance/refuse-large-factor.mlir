// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=20KB --remarks=missed 2>&1 | filecheck %s

// Differences of 1e-18 times 1e20 are ordinary numbers. Squared by themselves they would be 0, and the factor infinite.

// CHECK: stablehlo.subtract {{.*}} : tensor<40x50x32xf32>
// CHECK: {{.*}}refuse-large-factor.mlir:{{.*}}: remark: 40x50x32xf32 (256KB) not multiplied out: it multiplies by a number so large or so small

func.func @main(%a: tensor<40x32xf32>, %b: tensor<50x32xf32>) -> tensor<40x50xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %small = stablehlo.constant dense<1.0e-18> : tensor<40x32xf32>
  %smaller = stablehlo.constant dense<1.0e-18> : tensor<50x32xf32>
  %large = stablehlo.constant dense<1.0e+20> : tensor<40x50x32xf32>
  %a1 = stablehlo.multiply %a, %small : tensor<40x32xf32>
  %b1 = stablehlo.multiply %b, %smaller : tensor<50x32xf32>
  %0 = stablehlo.broadcast_in_dim %a1, dims = [0, 2] : (tensor<40x32xf32>) -> tensor<40x50x32xf32>
  %1 = stablehlo.broadcast_in_dim %b1, dims = [1, 2] : (tensor<50x32xf32>) -> tensor<40x50x32xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<40x50x32xf32>
  %3 = stablehlo.multiply %2, %large : tensor<40x50x32xf32>
  %4 = stablehlo.multiply %3, %3 : tensor<40x50x32xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<40x50x32xf32>, tensor<f32>) -> tensor<40x50xf32>
  return %5 : tensor<40x50xf32>
}
