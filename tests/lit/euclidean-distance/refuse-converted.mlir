// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=20KB --remarks=missed 2>&1 | filecheck %s

// A difference that is cut off to integers is none of the points: a dot in bfloat16 is multiplied out, and would lose it.

// CHECK: stablehlo.subtract
// CHECK: stablehlo.convert {{.*}} -> tensor<40x50x8xi32>
// CHECK: stablehlo.dot_general
// CHECK: {{.*}}refuse-converted.mlir:{{.*}}: remark: 40x50x8xbf16 (32KB) not multiplied out: convert is not multiplied out

func.func @main(%a: tensor<40x8xf32>, %b: tensor<50x8xf32>, %w: tensor<8xbf16>) -> tensor<40x50xbf16> {
  %four = stablehlo.constant dense<4.0> : tensor<40x50x8xf32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<40x8xf32>) -> tensor<40x50x8xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<50x8xf32>) -> tensor<40x50x8xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<40x50x8xf32>
  %3 = stablehlo.multiply %2, %four : tensor<40x50x8xf32>
  %4 = stablehlo.convert %3 : (tensor<40x50x8xf32>) -> tensor<40x50x8xi32>
  %5 = stablehlo.convert %4 : (tensor<40x50x8xi32>) -> tensor<40x50x8xbf16>
  %6 = stablehlo.dot_general %5, %w, contracting_dims = [2] x [0] : (tensor<40x50x8xbf16>, tensor<8xbf16>) -> tensor<40x50xbf16>
  return %6 : tensor<40x50xbf16>
}
