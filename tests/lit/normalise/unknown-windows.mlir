// RUN: %exla-opt %s --passes=normalise,rce --quiet | filecheck %s

// A gather of one window at a position that is not known is a dynamic slice: both clamp. Not so several windows, and not
// indices that may be too narrow for the number that the start is clamped to.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x300x6xf32>, %[[I:[^:]*]]: tensor<i32>, %[[J:[^:]*]]: tensor<2xi32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK: %[[ROW:.*]] = stablehlo.dynamic_slice %[[X]], %[[ZERO]], %[[I]], %[[ZERO]], sizes = [3, 1, 6]
// CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[ROW]] : (tensor<3x1x6xf32>) -> tensor<3x6xf32>
// CHECK: %[[ONE:.*]] = stablehlo.slice %[[J]] [0:1]
// CHECK: %[[FIRST:.*]] = stablehlo.reshape %[[ONE]] : (tensor<1xi32>) -> tensor<i32>
// CHECK: %[[TWO:.*]] = stablehlo.slice %[[J]] [1:2]
// CHECK: %[[SECOND:.*]] = stablehlo.reshape %[[TWO]] : (tensor<1xi32>) -> tensor<i32>
// CHECK: %[[BOX:.*]] = stablehlo.dynamic_slice %[[X]], %[[SECOND]], %[[ZERO]], %[[FIRST]], sizes = [1, 300, 2]
// CHECK: %[[BATCH:.*]] = stablehlo.reshape %[[BOX]] : (tensor<1x300x2xf32>) -> tensor<1x1x300x2xf32>
// CHECK: %[[MANY:.*]] = "stablehlo.gather"(%[[X]]
// CHECK: %[[NARROW:.*]] = "stablehlo.gather"(%[[X]]
// CHECK: %[[UNSIGNED:.*]] = "stablehlo.gather"(%[[X]]
// CHECK: return %[[ROWS]], %[[BATCH]], %[[MANY]], %[[NARROW]], %[[UNSIGNED]]

func.func @main(%x: tensor<3x300x6xf32>, %i: tensor<i32>, %j: tensor<2xi32>, %k: tensor<2x1xi32>, %l: tensor<1xi8>, %m: tensor<1xui32>)
    -> (tensor<3x6xf32>, tensor<1x1x300x2xf32>, tensor<2x3x6xf32>, tensor<3x6xf32>, tensor<3x6xf32>) {
  %0 = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %both = stablehlo.concatenate %0, %zero, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %row = "stablehlo.gather"(%x, %both) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [1], start_index_map = [1, 2]>, slice_sizes = array<i64: 3, 1, 6>}> : (tensor<3x300x6xf32>, tensor<2xi32>) -> tensor<3x6xf32>
  %column = stablehlo.reshape %j : (tensor<2xi32>) -> tensor<2x1xi32>
  %box = "stablehlo.gather"(%x, %column) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 3], start_index_map = [2, 0]>, slice_sizes = array<i64: 1, 300, 2>}> : (tensor<3x300x6xf32>, tensor<2x1xi32>) -> tensor<1x1x300x2xf32>
  %many = "stablehlo.gather"(%x, %k) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 3, 1, 6>}> : (tensor<3x300x6xf32>, tensor<2x1xi32>) -> tensor<2x3x6xf32>
  %narrow = "stablehlo.gather"(%x, %l) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [1], start_index_map = [1]>, slice_sizes = array<i64: 3, 1, 6>}> : (tensor<3x300x6xf32>, tensor<1xi8>) -> tensor<3x6xf32>
  %unsigned = "stablehlo.gather"(%x, %m) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [1], start_index_map = [1]>, slice_sizes = array<i64: 3, 1, 6>}> : (tensor<3x300x6xf32>, tensor<1xui32>) -> tensor<3x6xf32>
  return %row, %box, %many, %narrow, %unsigned : tensor<3x6xf32>, tensor<1x1x300x2xf32>, tensor<2x3x6xf32>, tensor<3x6xf32>, tensor<3x6xf32>
}
