// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// Nothing is known of this custom call, so it gets its operand whole.

// CHECK-NOT: stablehlo.while
// CHECK: %[[BIG:.*]] = stablehlo.exponential {{.*}} : tensor<256x200xf32>
// CHECK: stablehlo.custom_call @my_kernel(%[[BIG]], {{.*}}) : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
// CHECK-NOT: stablehlo.while
// CHECK: refuse-unknown-custom-call.mlir:{{[0-9]+}}:8: remark: 256x200xf32 (205KB) not split: no splitting rule for custom_call @my_kernel (stablehlo.custom_call at {{.*}}) [tensor-splitter, EX202]

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.custom_call @my_kernel(%1, %v) : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
