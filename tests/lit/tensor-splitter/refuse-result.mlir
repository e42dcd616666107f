// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The caller wants it whole.

// CHECK-NOT: stablehlo.while
// CHECK: %[[BIG:.*]] = stablehlo.dot_general {{.*}} -> tensor<256x200xf32>
// CHECK-NEXT: return %[[BIG]]
// CHECK: refuse-result.mlir:{{[0-9]+}}:8: remark: 256x200xf32 (205KB) not split: it is a result of this block (func.return at {{.*}}) [tensor-splitter, EX103]

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>) -> tensor<256x200xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  return %0 : tensor<256x200xf32>
}
