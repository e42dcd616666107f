// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// Nothing says how the tensors are spread: there is no program of one device.

// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.dot_general {{.*}} -> tensor<256x200xf32>
// CHECK-NEXT: stablehlo.exponential {{.*}} : tensor<256x200xf32>
// CHECK-NOT: stablehlo.while
// CHECK: refuse-partitioned.mlir:{{[0-9]+}}:8: remark: 256x200xf32 (205KB) not split: it has 0 meshes of 2 devices [tensor-splitter, EX311]
// CHECK: refuse-partitioned.mlir:{{[0-9]+}}:8: remark: 256x200xf32 (205KB) not split: it has 0 meshes of 2 devices [tensor-splitter, EX311]

module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
}
