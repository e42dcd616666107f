// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=1000 --split-size=1000 2>&1 | filecheck %s

// One row is written. In the tiles that do not have it, the index is moved inside and what was written is left out: XLA:CPU
// would read the row of another tile there.

// CHECK: %[[TILE:.*]] = stablehlo.dynamic_slice %arg1, {{.*}} sizes = [14, 9]
// CHECK: %[[NEAREST:.*]] = stablehlo.clamp
// CHECK: %[[WRITTEN:.*]] = "stablehlo.scatter"(%[[TILE]], %[[NEAREST]]
// CHECK: %[[INSIDE:.*]] = stablehlo.compare EQ
// CHECK: stablehlo.select %{{.*}}, %[[WRITTEN]], %[[TILE]] : tensor<i1>, tensor<14x9xf32>
// CHECK-NOT: not split

func.func @main(%v: tensor<9x1xf32>, %x: tensor<28x9xf32>, %at: tensor<1xi32>, %row: tensor<9xf32>) -> tensor<28x1xf32> {
  %0 = "stablehlo.scatter"(%x, %at, %row) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<28x9xf32>, tensor<1xi32>, tensor<9xf32>) -> tensor<28x9xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<28x9xf32>, tensor<9x1xf32>) -> tensor<28x1xf32>
  return %1 : tensor<28x1xf32>
}
