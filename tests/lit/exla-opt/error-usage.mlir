// RUN: %exla-opt %s --size-threshold=2GB --split-size=2GB -o %t
// RUN: not %exla-opt %s --split-size=2GB 2>&1 | filecheck %s --check-prefix=SPLIT
// RUN: not %exla-opt %s --size-threshold=500M 2>&1 | filecheck %s --check-prefix=UNIT
// RUN: not %exla-opt %s --op-rule=my_kernel 2>&1 | filecheck %s --check-prefix=RULE
// RUN: not %exla-opt %s.nowhere 2>&1 | filecheck %s --check-prefix=FILE

// Wrong usage gets one sentence that says what would be right.

// SPLIT: --split-size (2GB) is above --size-threshold (1GB)
// UNIT: did you mean 500MB or 500MiB?
// RULE: 'my_kernel' is not of the form
// FILE: error-usage.mlir.nowhere
// FILE-SAME: No such file or directory

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
