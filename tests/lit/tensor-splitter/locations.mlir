// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Every new op has the place of the op that it comes from, the loop that of its big tensor.

// CHECK: stablehlo.while
// CHECK: stablehlo.multiply {{.*}} loc([[DOT:#.*]])
// CHECK-NEXT: stablehlo.dynamic_slice {{.*}} loc([[DOT]])
// CHECK-NEXT: stablehlo.dot_general {{.*}} loc([[DOT]])
// CHECK-NEXT: stablehlo.exponential {{.*}} loc([[EXP:#.*]])
// CHECK-NEXT: stablehlo.dot_general {{.*}} loc([[OUT:#.*]])
// CHECK-NEXT: stablehlo.dynamic_update_slice {{.*}} loc([[OUT]])
// CHECK-NEXT: stablehlo.add {{.*}} loc([[DOT]])
// CHECK-NEXT: stablehlo.return {{.*}} loc([[DOT]])
// CHECK-NEXT: } loc([[DOT]])
// CHECK-DAG: [[DOT]] = loc("model.py":11:4)
// CHECK-DAG: [[EXP]] = loc("model.py":12:4)
// CHECK-DAG: [[OUT]] = loc("model.py":13:4)

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32> loc("model.py":11:4)
  %1 = stablehlo.exponential %0 : tensor<256x200xf32> loc("model.py":12:4)
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32> loc("model.py":13:4)
  return %2 : tensor<256xf32>
}
