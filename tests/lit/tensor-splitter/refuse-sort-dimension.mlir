// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// A sort compares everything along its dimension, and there is no other here.

// CHECK-NOT: stablehlo.while
// CHECK: %[[BIG:.*]] = stablehlo.cosine {{.*}} : tensor<65536xf32>
// CHECK: "stablehlo.sort"(%[[BIG]])
// CHECK-NOT: stablehlo.while
// CHECK: refuse-sort-dimension.mlir:{{[0-9]+}}:8: remark: 65536xf32 (262KB) not split: stablehlo.sort compares all elements along the dimension that it sorts (stablehlo.sort at {{.*}}) [tensor-splitter, EX201]
// CHECK: refuse-sort-dimension.mlir:{{[0-9]+}}:8: remark: 65536xf32 (262KB) not split: stablehlo.sort compares all elements along the dimension that it sorts [tensor-splitter, EX201]

func.func @main(%a: tensor<65536xf32>, %v: tensor<65536xf32>) -> tensor<f32> {
  %0 = stablehlo.cosine %a : tensor<65536xf32>
  %1 = "stablehlo.sort"(%0) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %c = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<65536xf32>) -> tensor<65536xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [0] x [0] : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}
