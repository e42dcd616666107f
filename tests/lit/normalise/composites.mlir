// A composite that stands for a chlo op becomes the op; any other stays.
// RUN: %exla-opt %s --passes=normalise | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: tensor<4x9xf32>
func.func @main(%x: tensor<4x9xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x9xf32>) {
  // CHECK: chlo.top_k(%[[X]], k = 3)
  %0:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 3 : i64}, decomposition = @top_k} : (tensor<4x9xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>)
  // CHECK: stablehlo.composite "mine.twice" %[[X]]
  %1 = stablehlo.composite "mine.twice" %x {decomposition = @twice} : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %0#0, %0#1, %1 : tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x9xf32>
}
// CHECK-NOT: @top_k
// CHECK: func.func private @twice
func.func private @top_k(%x: tensor<4x9xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>) {
  %values, %indices = chlo.top_k(%x, k = 3) : tensor<4x9xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)
  return %values, %indices : tensor<4x3xf32>, tensor<4x3xi32>
}
func.func private @twice(%x: tensor<4x9xf32>) -> tensor<4x9xf32> {
  %0 = stablehlo.add %x, %x : tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}
