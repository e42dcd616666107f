// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB -o %t.text
// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --emit=portable -o %t.portable
// RUN: %exla-opt %t.portable --size-threshold=64KB --split-size=32KB | diff %t.text -
// RUN: %exla-opt %s --passes= --emit=portable | %exla-opt - --size-threshold=64KB --split-size=32KB | filecheck %s

// A portable artifact is recognised by its content, from a file and from a pipe, before and after the split.

// CHECK: stablehlo.while
// CHECK: stablehlo.exponential {{.*}} : tensor<32x200xf32>

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
