// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --pass-pipeline='builtin.module(normalise,tensor-splitter,normalise)' -o %t.nested
// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --passes=normalise,tensor-splitter,normalise | diff %t.nested -
// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | diff %t.nested -
// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --pass-pipeline='builtin.module(normalise)' | filecheck %s
// RUN: not %exla-opt %s --pass-pipeline='builtin.module(tensor-spliter)' 2>&1 | filecheck %s --check-prefix=UNKNOWN

// MLIR's form of a pipeline, the short one and the default are the same; passes that are not named do not run.

// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.exponential {{.*}} : tensor<256x200xf32>

// UNKNOWN: unknown pass 'tensor-spliter'. Did you mean 'tensor-splitter'?

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
