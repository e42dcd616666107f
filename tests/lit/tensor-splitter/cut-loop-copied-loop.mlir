// RUN: %exla-opt %s --passes=tensor-splitter --size-threshold=2KB --split-size=2KB 2>&1 | filecheck %s

// The loop reads what takes too long to be computed again in each trip, and is cut around it.
// Nothing that is read of the loop inside comes from what is cut: it is copied, with the numbers that its blocks capture.

// CHECK: stablehlo.while(
// CHECK: stablehlo.while(
// CHECK: stablehlo.while(
// CHECK-NOT: stablehlo.while(
// CHECK: return

func.func @main(%x: tensor<1x18x5x24xui8>) -> tensor<ui8> {
  %zero = stablehlo.constant dense<0> : tensor<ui8>
  %one = stablehlo.constant dense<1> : tensor<ui8>
  %three = stablehlo.constant dense<3> : tensor<ui8>
  %zeros = stablehlo.constant dense<0> : tensor<1x18x5x24xui8>
  %y0 = stablehlo.subtract %zeros, %x : tensor<1x18x5x24xui8>
  %y1 = stablehlo.multiply %y0, %x : tensor<1x18x5x24xui8>
  %y2 = stablehlo.multiply %y1, %x : tensor<1x18x5x24xui8>
  %y3 = stablehlo.multiply %y2, %x : tensor<1x18x5x24xui8>
  %y4 = stablehlo.multiply %y3, %x : tensor<1x18x5x24xui8>
  %y5 = stablehlo.multiply %y4, %x : tensor<1x18x5x24xui8>
  %y6 = stablehlo.multiply %y5, %x : tensor<1x18x5x24xui8>
  %y7 = stablehlo.multiply %y6, %x : tensor<1x18x5x24xui8>
  %y8 = stablehlo.multiply %y7, %x : tensor<1x18x5x24xui8>
  %y9 = stablehlo.multiply %y8, %x : tensor<1x18x5x24xui8>
  %y10 = stablehlo.multiply %y9, %x : tensor<1x18x5x24xui8>
  %y11 = stablehlo.multiply %y10, %x : tensor<1x18x5x24xui8>
  %y12 = stablehlo.multiply %y11, %x : tensor<1x18x5x24xui8>
  %loop:2 = stablehlo.while(%i = %zero, %total = %zero) : tensor<ui8>, tensor<ui8>
  cond {
    %more = stablehlo.compare LT, %i, %three : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %sum = stablehlo.reduce(%y12 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2, 3] : (tensor<1x18x5x24xui8>, tensor<ui8>) -> tensor<ui8>
    %inner:3 = stablehlo.while(%j = %zero, %a = %i, %s = %sum) : tensor<ui8>, tensor<ui8>, tensor<ui8>
    cond {
      %more = stablehlo.compare LT, %j, %three : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %b = stablehlo.multiply %a, %three : tensor<ui8>
      %next = stablehlo.add %j, %one : tensor<ui8>
      stablehlo.return %next, %b, %zero : tensor<ui8>, tensor<ui8>, tensor<ui8>
    }
    %added = stablehlo.add %total, %sum : tensor<ui8>
    %next = stablehlo.add %i, %inner#0 : tensor<ui8>
    stablehlo.return %next, %added : tensor<ui8>, tensor<ui8>
  }
  return %loop#1 : tensor<ui8>
}
