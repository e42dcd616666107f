// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=512 --split-size=128 | filecheck %s

// The last tile holds one update alone. XLA:CPU checks the index of a single update by the last place that there is, in
// the index's own type: 306 is 50 in 8 bits, and what goes to a later place would be dropped.

// CHECK: stablehlo.while
// CHECK: stablehlo.convert %{{.*}} : (tensor<[[TILE:[0-9]+]]x1xui8>) -> tensor<[[TILE]]x1xi32>
// CHECK: stablehlo.convert %{{.*}} : (tensor<1x1xui8>) -> tensor<1x1xi32>
// CHECK: "stablehlo.scatter"
// CHECK: (tensor<307x[[COLUMNS:[0-9]+]]xf32>, tensor<1x1xi32>, tensor<1x[[COLUMNS]]xf32>) -> tensor<307x[[COLUMNS]]xf32>

func.func @main(%x: tensor<307x4xf32>, %at: tensor<121x1xui8>, %a: tensor<121x5xf32>, %b: tensor<5x4xf32>) -> tensor<307x4xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<121x5xf32>, tensor<5x4xf32>) -> tensor<121x4xf32>
  %1 = "stablehlo.scatter"(%x, %at, %0) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %2 = stablehlo.minimum %p, %q : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<307x4xf32>, tensor<121x1xui8>, tensor<121x4xf32>) -> tensor<307x4xf32>
  return %1 : tensor<307x4xf32>
}
