// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --print-ir-after-all -o %t 2>&1 | filecheck %s
// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | diff %t -

// The module after every pass, on standard error; the output is the same as without.

// CHECK: // -----// IR Dump After normalise //----- //
// CHECK: stablehlo.exponential {{.*}} : tensor<256x200xf32>
// CHECK: // -----// IR Dump After tensor-splitter //----- //
// CHECK: stablehlo.while
// CHECK: // -----// IR Dump After normalise //----- //
// CHECK: stablehlo.exponential {{.*}} : tensor<32x200xf32>
// CHECK-NOT: IR Dump

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
