// RUN: %exla-opt %s --passes=rce | filecheck %s

// bfloat16 has as many bits as float16 and fewer digits: a maximum that is taken in it rounds.

// CHECK: stablehlo.broadcast_in_dim
// CHECK: stablehlo.reduce

func.func @main(%x: tensor<50xf16>) -> tensor<50xf16> {
  %least = stablehlo.constant dense<0xFC00> : tensor<f16>
  %0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<50xf16>) -> tensor<50x7xf16>
  %1 = stablehlo.reduce(%0 init: %least) across dimensions = [1] : (tensor<50x7xf16>, tensor<f16>) -> tensor<50xf16>
   reducer(%a: tensor<f16>, %b: tensor<f16>) {
    %2 = stablehlo.convert %a : (tensor<f16>) -> tensor<bf16>
    %3 = stablehlo.convert %b : (tensor<f16>) -> tensor<bf16>
    %4 = stablehlo.maximum %2, %3 : tensor<bf16>
    %5 = stablehlo.convert %4 : (tensor<bf16>) -> tensor<f16>
    stablehlo.return %5 : tensor<f16>
  }
  return %1 : tensor<50xf16>
}
