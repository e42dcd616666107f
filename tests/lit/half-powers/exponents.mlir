// RUN: %exla-opt %s --passes=half-powers | filecheck %s
// RUN: %exla-opt %s --passes=half-powers --no-reassociate | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=half-powers --target=gpu | filecheck %s --check-prefix=LEFT

// An exponent that is an integer, one that is not, of squares. The others stay: -1.5 of what may be negative, a third, and
// numbers of 16 bits.

// CHECK: %[[SQUARE:.*]] = stablehlo.multiply %arg0, %arg0
// CHECK: %[[OVER:.*]] = stablehlo.divide %{{.*}}, %arg0
// CHECK-NEXT: %[[CUBE:.*]] = stablehlo.multiply %[[OVER]], %[[OVER]]
// CHECK-NEXT: %[[ONE:.*]] = stablehlo.multiply %[[CUBE]], %[[OVER]]
// CHECK: %[[INVERSE:.*]] = stablehlo.divide %{{.*}}, %[[SQUARE]]
// CHECK-NEXT: %[[ROOT:.*]] = stablehlo.rsqrt %[[SQUARE]]
// CHECK-NEXT: %[[TWO:.*]] = stablehlo.multiply %[[INVERSE]], %[[ROOT]]
// CHECK: %[[THREE:.*]] = stablehlo.power %arg0,
// CHECK: %[[FOUR:.*]] = stablehlo.power %[[SQUARE]],
// CHECK: %[[FIVE:.*]] = stablehlo.power %arg1,
// CHECK: return %[[ONE]], %[[TWO]], %[[THREE]], %[[FOUR]], %[[FIVE]]

// LEFT-COUNT-5: stablehlo.power

func.func @main(%x: tensor<64xf32>, %h: tensor<64xbf16>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xbf16>) {
  %minus_three = stablehlo.constant dense<-3.0> : tensor<64xf32>
  %minus_one_and_a_half = stablehlo.constant dense<-1.5> : tensor<64xf32>
  %third = stablehlo.constant dense<0.333333343> : tensor<64xf32>
  %two = stablehlo.constant dense<2.0> : tensor<64xbf16>
  %square = stablehlo.multiply %x, %x : tensor<64xf32>
  %0 = stablehlo.power %x, %minus_three : tensor<64xf32>
  %1 = stablehlo.power %square, %minus_one_and_a_half : tensor<64xf32>
  %2 = stablehlo.power %x, %minus_one_and_a_half : tensor<64xf32>
  %3 = stablehlo.power %square, %third : tensor<64xf32>
  %4 = stablehlo.power %h, %two : tensor<64xbf16>
  return %0, %1, %2, %3, %4 : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xbf16>
}
