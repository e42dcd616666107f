// RUN: %exla-opt %s --passes=reshape-sinker | filecheck %s

// A running sum of 8 digits stops growing at 256 times its terms. How many running sums there are depends on the shape: one
// for each lane of a long row, one for each element of short ones. A maximum needs none.

// CHECK: %[[ROW:.*]] = stablehlo.reshape %{{.*}} : (tensor<256x256xbf16>) -> tensor<65536xbf16>
// CHECK: stablehlo.reduce(%[[ROW]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// CHECK: %[[TURNED:.*]] = stablehlo.transpose
// CHECK: stablehlo.reduce(%[[TURNED]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// CHECK: stablehlo.reduce(%arg0 init: %{{.*}}) applies stablehlo.maximum across dimensions = [0, 1]

func.func @main(%x: tensor<256x256xbf16>, %y: tensor<256x256xbf16>) -> (tensor<bf16>, tensor<256xbf16>, tensor<bf16>) {
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.reshape %x : (tensor<256x256xbf16>) -> tensor<65536xbf16>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xbf16>, tensor<bf16>) -> tensor<bf16>
  %2 = stablehlo.transpose %y, dims = [1, 0] : (tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<256x256xbf16>, tensor<bf16>) -> tensor<256xbf16>
  %4 = stablehlo.reduce(%0 init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<65536xbf16>, tensor<bf16>) -> tensor<bf16>
  return %1, %3, %4 : tensor<bf16>, tensor<256xbf16>, tensor<bf16>
}
