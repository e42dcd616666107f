// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --timing -o %t 2>&1 | filecheck %s

// The steps in the order in which they ran.

// CHECK: ... Execution time report ...
// CHECK: Total Execution Time: {{[0-9.]+}} seconds
// CHECK: ----Wall Time----  ----Name----
// CHECK-NEXT: %)  Parser
// CHECK-NEXT: %)  normalise
// CHECK-NEXT: %)  rce
// CHECK-NEXT: %)  pointwise-convolutions
// CHECK-NEXT: %)  euclidean-distance
// CHECK-NEXT: %)  matrix-chain-order
// CHECK-NEXT: %)  reused-products
// CHECK-NEXT: %)  symmetric-sums
// CHECK-NEXT: %)  symmetric-products
// CHECK-NEXT: %)  reshape-sinker
// CHECK-NEXT: %)  loop-residuals
// CHECK-NEXT: %)  late-sums
// CHECK-NEXT: %)  blocked-cholesky
// CHECK-NEXT: %)  order-statistics
// CHECK-NEXT: %)  tensor-splitter
// CHECK-NEXT: %)  blocked-solve
// CHECK-NEXT: %)  convolution-layout
// CHECK-NEXT: %)  pooling-gradients
// CHECK-NEXT: %)  rce
// CHECK-NEXT: %)  recompute
// CHECK-NEXT: %)  blocked-top-k
// CHECK-NEXT: %)  dot-order
// CHECK-NEXT: %)  half-powers
// CHECK-NEXT: %)  joined-trips
// CHECK-NEXT: %)  narrow-slices
// CHECK-NEXT: %)  wide-sums
// CHECK-NEXT: %)  reshape-sinker
// CHECK-NEXT: %)  unit-dims
// CHECK-NEXT: %)  dot-order
// CHECK-NEXT: %)  normalise
// CHECK-NEXT: %)  Output
// CHECK-NEXT: %)  Rest
// CHECK-NEXT: %)  Total

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
