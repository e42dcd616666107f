// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB -o %t
// RUN: %exla-opt --size-threshold=64KB --split-size=32KB < %s | diff %t -
// RUN: cat %s | %exla-opt - --size-threshold=64KB --split-size=32KB -o - | filecheck %s

// Standard input and standard output are the defaults, and are called `-`.

// CHECK: stablehlo.while

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
