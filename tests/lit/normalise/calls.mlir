// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Nested calls, several uses of one function and calls in regions: the bodies take the places of the calls.

// CHECK-LABEL: func.func public @main
// CHECK-SAME: ([[X:%.+]]: tensor<4xf32>, [[P:%.+]]: tensor<i1>)
// CHECK-NEXT: [[SQUARE:%.+]] = chlo.square [[X]]
// CHECK-NEXT: [[SUM:%.+]] = stablehlo.add [[SQUARE]], [[X]]
// CHECK-NEXT: [[AGAIN:%.+]] = chlo.square [[SUM]]
// CHECK-NEXT: [[IF:%.+]] = "stablehlo.if"([[P]])
// CHECK-NEXT: [[INNER:%.+]] = chlo.square [[AGAIN]]
// CHECK-NEXT: [[OUTER:%.+]] = stablehlo.add [[INNER]], [[AGAIN]]
// CHECK-NEXT: stablehlo.return [[OUTER]]
// CHECK: stablehlo.return [[AGAIN]]
// CHECK: return [[IF]]
// CHECK-NOT: func.func

func.func public @main(%x: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
  %0 = call @outer(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @inner(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.if"(%p) ({
    %3 = func.call @outer(%1) : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %3 : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

func.func private @outer(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @inner(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %a : tensor<4xf32>
  return %1 : tensor<4xf32>
}

func.func private @inner(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = chlo.square %a : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
