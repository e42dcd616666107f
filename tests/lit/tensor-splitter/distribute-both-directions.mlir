// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=32KB --split-size=16KB | filecheck %s
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=32KB --split-size=16KB --no-reassociate -o /dev/null 2>&1 | filecheck %s --check-prefix=EXACT

// Which elements are the least of their row, and which of their column, is asked by one loop each: both see all that they
// ask about. What is computed of the sum of both answers is computed of each, and added.

// CHECK-NOT: tensor<256x200xf32>
// CHECK: stablehlo.while
// CHECK: stablehlo.compare EQ, {{.*}} -> tensor<16x200xi1>
// CHECK: stablehlo.while
// CHECK: stablehlo.compare EQ, {{.*}} -> tensor<256x10xi1>
// CHECK-NOT: tensor<256x200xf32>

// EXACT: remark: 256x200xf32 (205KB) not split

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>) -> (tensor<256x4xf32>, tensor<200x4xf32>) {
  %most = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %e = stablehlo.exponential %d : tensor<256x200xf32>
  %rows = stablehlo.reduce(%e init: %most) applies stablehlo.minimum across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  %0 = stablehlo.broadcast_in_dim %rows, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.compare EQ, %e, %0 : (tensor<256x200xf32>, tensor<256x200xf32>) -> tensor<256x200xi1>
  %2 = stablehlo.convert %1 : (tensor<256x200xi1>) -> tensor<256x200xf32>
  %columns = stablehlo.reduce(%e init: %most) applies stablehlo.minimum across dimensions = [0] : (tensor<256x200xf32>, tensor<f32>) -> tensor<200xf32>
  %3 = stablehlo.broadcast_in_dim %columns, dims = [1] : (tensor<200xf32>) -> tensor<256x200xf32>
  %4 = stablehlo.compare EQ, %e, %3 : (tensor<256x200xf32>, tensor<256x200xf32>) -> tensor<256x200xi1>
  %5 = stablehlo.convert %4 : (tensor<256x200xi1>) -> tensor<256x200xf32>
  %6 = stablehlo.subtract %2, %5 : tensor<256x200xf32>
  %7 = stablehlo.dot_general %6, %b, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200x4xf32>) -> tensor<256x4xf32>
  %8 = stablehlo.dot_general %6, %a, contracting_dims = [0] x [0] : (tensor<256x200xf32>, tensor<256x4xf32>) -> tensor<200x4xf32>
  return %7, %8 : tensor<256x4xf32>, tensor<200x4xf32>
}
