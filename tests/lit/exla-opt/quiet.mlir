// RUN: %exla-opt %s --size-threshold=64KB -o %t --passes=tensor-splitter 2>&1 | filecheck %s
// RUN: %exla-opt %s --size-threshold=64KB -o %t --passes=tensor-splitter --quiet 2>%t.errors
// RUN: diff %t.errors /dev/null

// What is not split is a remark on standard error, and none with --quiet.

// CHECK: quiet.mlir:{{[0-9]+}}:8: remark: 256x200xf32 (205KB) not split: it is a result of this block

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>) -> tensor<256x200xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  return %0 : tensor<256x200xf32>
}
