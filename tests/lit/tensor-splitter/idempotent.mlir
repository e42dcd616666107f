// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB -o %t.once
// RUN: %exla-opt %t.once --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>%t.remarks | diff %t.once -
// RUN: filecheck %s --check-prefix=SAID < %t.remarks
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | %exla-opt - --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// SAID: note: nothing was split: no tensor is over 64KB; the largest is 4.1KB
// SAID-NOT: remark

// A second run finds nothing more to do, and changes not a byte.

// CHECK: stablehlo.while
// CHECK: stablehlo.dynamic_slice {{.*}}, sizes = [32, 4]
// CHECK-NOT: stablehlo.while
// CHECK: return

func.func @main(%q: tensor<256x4xf32>, %k: tensor<200x4xf32>, %v: tensor<200x4xf32>) -> tensor<256x4xf32> {
  %0 = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<256x200xf32>
  %4 = stablehlo.exponential %3 : tensor<256x200xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %7 = stablehlo.divide %4, %6 : tensor<256x200xf32>
  %8 = stablehlo.dot_general %7, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200x4xf32>) -> tensor<256x4xf32>
  return %8 : tensor<256x4xf32>
}
