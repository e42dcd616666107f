// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// A product over nothing is zero, and zero times an infinity is no number: the other order would give zero.

// CHECK: %[[ZEROS:.*]] = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<40x0xf32>, tensor<0x30xf32>) -> tensor<40x30xf32>
// CHECK: stablehlo.dot_general %[[ZEROS]], %arg2

func.func @main(%a: tensor<40x0xf32>, %b: tensor<0x30xf32>, %v: tensor<30xf32>) -> tensor<40xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<40x0xf32>, tensor<0x30xf32>) -> tensor<40x30xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<40x30xf32>, tensor<30xf32>) -> tensor<40xf32>
  return %1 : tensor<40xf32>
}
