// RUN: env PYTHONHASHSEED=1 %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB -o %t.one
// RUN: env PYTHONHASHSEED=2 %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB -o %t.other
// RUN: diff %t.one %t.other
// RUN: filecheck %s < %t.one

// Two runs write the same bytes, whatever Python's hash seed.

// CHECK: stablehlo.while
// CHECK: stablehlo.return {{.*}} : tensor<i32>, tensor<256xf32>, tensor<200xf32>, tensor<f32>

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> (tensor<256xf32>, tensor<200xf32>, tensor<f32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
  %4 = stablehlo.reduce(%1 init: %zero) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<f32>
  return %2, %3, %4 : tensor<256xf32>, tensor<200xf32>, tensor<f32>
}
