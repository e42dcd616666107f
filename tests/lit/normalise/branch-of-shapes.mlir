// RUN: %exla-opt %s --passes=normalise | filecheck %s

// TensorFlow asks whether a size is odd, and pads if it is: all of it is known.

// CHECK: func.func @main
// CHECK-NOT: stablehlo.if
// CHECK: %[[COS:.*]] = stablehlo.cosine %arg0
// CHECK-NEXT: return %[[COS]]

func.func @main(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {
  %shape = stablehlo.constant dense<[8, 6]> : tensor<2xi32>
  %two = stablehlo.constant dense<2> : tensor<2xi32>
  %none = stablehlo.constant dense<0> : tensor<2xi32>
  %false = stablehlo.constant dense<false> : tensor<i1>
  %rest = stablehlo.remainder %shape, %two : tensor<2xi32>
  %odd = stablehlo.compare NE, %rest, %none : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
  %any = stablehlo.reduce(%odd init: %false) applies stablehlo.or across dimensions = [0] : (tensor<2xi1>, tensor<i1>) -> tensor<i1>
  %r = "stablehlo.if"(%any) ({
    %s = stablehlo.sine %x : tensor<8x6xf32>
    stablehlo.return %s : tensor<8x6xf32>
  }, {
    %c = stablehlo.cosine %x : tensor<8x6xf32>
    stablehlo.return %c : tensor<8x6xf32>
  }) : (tensor<i1>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}
