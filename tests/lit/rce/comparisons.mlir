// RUN: %exla-opt %s --passes=rce | filecheck %s

// A number equals the larger of itself and another if it is no smaller than the other: the gradient of a maximum asks
// which of two numbers it is. Not in the total order of floats, nor of another number.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32>, %[[Y:[^:]*]]: tensor<4xf32>
// CHECK: %[[LARGER:.*]] = stablehlo.maximum
// CHECK: stablehlo.compare GE, %[[X]], %[[Y]], FLOAT
// CHECK: stablehlo.compare GE, %[[Y]], %[[X]], FLOAT
// CHECK: stablehlo.compare LE, %[[X]], %[[Y]]
// CHECK: stablehlo.compare EQ, %[[X]], %[[LARGER]], TOTALORDER
// CHECK: stablehlo.compare NE, %[[X]], %[[LARGER]], FLOAT
// CHECK: stablehlo.compare EQ, %{{.*}}, %[[LARGER]], FLOAT

func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>) {
  %larger = stablehlo.maximum %x, %y : tensor<4xf32>
  %smaller = stablehlo.minimum %y, %x : tensor<4xf32>
  %0 = stablehlo.compare EQ, %x, %larger, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %1 = stablehlo.compare EQ, %larger, %y, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %2 = stablehlo.compare EQ, %x, %smaller : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %3 = stablehlo.compare EQ, %x, %larger, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %4 = stablehlo.compare NE, %x, %larger, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %5 = stablehlo.compare EQ, %z, %larger, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0, %1, %2, %3, %4, %5 : tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>
}
