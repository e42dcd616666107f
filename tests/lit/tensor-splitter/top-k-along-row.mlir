// Along the row the best of each tile compete with the best so far, those found first before their equals.
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=20KB | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-NOT: tensor<50021xf32>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<5xf32>, tensor<5xi32>
// CHECK: %[[TILE:.*]] = stablehlo.exponential {{.*}} : tensor<{{[0-9]+}}xf32>
// CHECK: %[[V:.*]], %[[I:.*]] = chlo.top_k(%[[TILE]], k = 5)
// CHECK: stablehlo.concatenate {{.*}} -> tensor<10xf32>
// CHECK: chlo.top_k({{.*}}, k = 5) : tensor<10xf32>
// CHECK: "stablehlo.gather"
// CHECK: stablehlo.select
// CHECK-NOT: tensor<50021xf32>
func.func @main(%q: tensor<8xf32>, %x: tensor<50021x8xf32>) -> (tensor<5xf32>, tensor<5xi32>) {
  %0 = stablehlo.dot_general %x, %q, contracting_dims = [1] x [0] : (tensor<50021x8xf32>, tensor<8xf32>) -> tensor<50021xf32>
  %1 = stablehlo.exponential %0 : tensor<50021xf32>
  %v, %i = chlo.top_k(%1, k = 5) : tensor<50021xf32> -> (tensor<5xf32>, tensor<5xi32>)
  return %v, %i : tensor<5xf32>, tensor<5xi32>
}
