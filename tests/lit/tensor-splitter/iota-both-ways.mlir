// RUN: %exla-opt %s --size-threshold=50KB --split-size=40KB | filecheck %s

// One iota is cut along its rows, where it belongs to what is transposed, and along its columns. Neither slice is one of an
// iota of 300x300, which the loop would capture.

// CHECK-NOT: 300x300xi32
// CHECK: stablehlo.while
// CHECK: stablehlo.iota dim = 0 : tensor<300x30xi32>
// CHECK: stablehlo.iota dim = 0 : tensor<30x300xi32>
// CHECK-NOT: 300x300xi32
// CHECK: return

func.func @main(%x: tensor<300xf32>, %w: tensor<300x300xf32>) -> tensor<300xf32> {
  %i = stablehlo.iota dim = 0 : tensor<300x300xi32>
  %j = stablehlo.iota dim = 1 : tensor<300x300xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<300x300xf32>
  %one = stablehlo.constant dense<1> : tensor<300x300xi32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<300xf32>) -> tensor<300x300xf32>
  %b = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<300xf32>) -> tensor<300x300xf32>
  %c = stablehlo.multiply %a, %b : tensor<300x300xf32>
  %s = stablehlo.sine %c : tensor<300x300xf32>
  %k = stablehlo.add %i, %one : tensor<300x300xi32>
  %below = stablehlo.compare GT, %k, %j, SIGNED : (tensor<300x300xi32>, tensor<300x300xi32>) -> tensor<300x300xi1>
  %l = stablehlo.select %below, %s, %zeros : tensor<300x300xi1>, tensor<300x300xf32>
  %t = stablehlo.transpose %l, dims = [1, 0] : (tensor<300x300xf32>) -> tensor<300x300xf32>
  %above = stablehlo.compare GE, %i, %j, SIGNED : (tensor<300x300xi32>, tensor<300x300xi32>) -> tensor<300x300xi1>
  %u = stablehlo.select %above, %t, %zeros : tensor<300x300xi1>, tensor<300x300xf32>
  %e = stablehlo.exponential %u : tensor<300x300xf32>
  %p = stablehlo.dot_general %e, %x, contracting_dims = [1] x [0] : (tensor<300x300xf32>, tensor<300xf32>) -> tensor<300xf32>
  return %p : tensor<300xf32>
}
