// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=32KB --split-size=8KB --remarks=all 2>&1 | filecheck %s

// The update is written over %0, whose buffer is the result's: to split %0 would save nothing, and would leave another
// tensor of its size that is written over, to be split in turn.

// CHECK-NOT: stablehlo.while
// CHECK: refuse-written-over-result.mlir:10:8: remark: 400x100xf32 (160KB) not split: it is a result of this block

func.func @main(%a: tensor<400x5xf32>, %b: tensor<5x100xf32>, %u: tensor<400x1xf32>, %i: tensor<i32>) -> tensor<400x100xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<400x5xf32>, tensor<5x100xf32>) -> tensor<400x100xf32>
  %2 = stablehlo.dynamic_update_slice %0, %u, %i, %i : (tensor<400x100xf32>, tensor<400x1xf32>, tensor<i32>, tensor<i32>) -> tensor<400x100xf32>
  return %2 : tensor<400x100xf32>
}
