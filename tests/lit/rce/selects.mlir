// RUN: %exla-opt %s --passes=rce | filecheck %s

// Of two selects by one predicate the first decides nothing; by another predicate, or in the predicate, it does.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[P:[^:]*]]: tensor<4xi1>, %[[Q:[^:]*]]: tensor<4xi1>, %[[X:[^:]*]]: tensor<4xf32>, %[[Y:[^:]*]]: tensor<4xf32>, %[[Z:[^:]*]]: tensor<4xf32>
// CHECK: %[[OTHER:.*]] = stablehlo.select %[[Q]], %[[X]], %[[Y]]
// CHECK: %[[TRUE:.*]] = stablehlo.select %[[P]], %[[X]], %[[Z]]
// CHECK: %[[FALSE:.*]] = stablehlo.select %[[P]], %[[Z]], %[[Y]]
// CHECK: %[[KEPT:.*]] = stablehlo.select %[[P]], %[[OTHER]], %[[Z]]
// CHECK: %[[INNER:.*]] = stablehlo.select %[[P]], %[[Q]], %[[P]]
// CHECK: %[[MASK:.*]] = stablehlo.select %[[INNER]], %[[X]], %[[Y]]
// CHECK: return %[[TRUE]], %[[FALSE]], %[[KEPT]], %[[MASK]]

func.func @main(%p: tensor<4xi1>, %q: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.select %p, %x, %y : tensor<4xi1>, tensor<4xf32>
  %1 = stablehlo.select %q, %x, %y : tensor<4xi1>, tensor<4xf32>
  %2 = stablehlo.select %p, %0, %z : tensor<4xi1>, tensor<4xf32>
  %3 = stablehlo.select %p, %z, %0 : tensor<4xi1>, tensor<4xf32>
  %4 = stablehlo.select %p, %1, %z : tensor<4xi1>, tensor<4xf32>
  %5 = stablehlo.select %p, %q, %p : tensor<4xi1>, tensor<4xi1>
  %6 = stablehlo.select %5, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %2, %3, %4, %6 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
