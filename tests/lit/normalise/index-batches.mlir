// RUN: %exla-opt %s --passes=normalise,rce --quiet | filecheck %s

// The batch of a gather is split in its indices. Not so if something else reads the gather as well, if the reshape splits a window or
// merges dimensions, or if the windows come first.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<30x8xf32>, %[[I:[^:]*]]: tensor<12x1xi32>
// CHECK: %[[PARTED:.*]] = stablehlo.reshape %[[I]] : (tensor<12x1xi32>) -> tensor<3x4x1xi32>
// CHECK: %[[ROWS:.*]] = "stablehlo.gather"(%[[X]], %[[PARTED]]) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, {{.*}} : (tensor<30x8xf32>, tensor<3x4x1xi32>) -> tensor<3x4x8xf32>
// CHECK: %[[ALL:.*]] = "stablehlo.gather"({{.*}} -> tensor<12x4xf32>
// CHECK: %[[WINDOWS:.*]] = stablehlo.reshape %[[ALL]] : (tensor<12x4xf32>) -> tensor<12x2x2xf32>
// CHECK: %[[FIRST:.*]] = "stablehlo.gather"({{.*}} -> tensor<8x12xf32>
// CHECK: %[[BEHIND:.*]] = stablehlo.reshape %[[FIRST]] : (tensor<8x12xf32>) -> tensor<8x3x4xf32>
// CHECK: %[[TWICE:.*]] = "stablehlo.gather"({{.*}} -> tensor<12x2xf32>
// CHECK: %[[READ:.*]] = stablehlo.reshape %[[TWICE]] : (tensor<12x2xf32>) -> tensor<6x2x2xf32>
// CHECK: return %[[ROWS]], %[[WINDOWS]], %[[BEHIND]], %[[TWICE]], %[[READ]]

func.func @main(%x: tensor<30x8xf32>, %i: tensor<12x1xi32>)
    -> (tensor<3x4x8xf32>, tensor<12x2x2xf32>, tensor<8x3x4xf32>, tensor<12x2xf32>, tensor<6x2x2xf32>) {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<30x8xf32>, tensor<12x1xi32>) -> tensor<12x8xf32>
  %rows = stablehlo.reshape %0 : (tensor<12x8xf32>) -> tensor<3x4x8xf32>
  %1 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> : (tensor<30x8xf32>, tensor<12x1xi32>) -> tensor<12x4xf32>
  %windows = stablehlo.reshape %1 : (tensor<12x4xf32>) -> tensor<12x2x2xf32>
  %2 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<30x8xf32>, tensor<12x1xi32>) -> tensor<8x12xf32>
  %behind = stablehlo.reshape %2 : (tensor<8x12xf32>) -> tensor<8x3x4xf32>
  %3 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>}> : (tensor<30x8xf32>, tensor<12x1xi32>) -> tensor<12x2xf32>
  %read = stablehlo.reshape %3 : (tensor<12x2xf32>) -> tensor<6x2x2xf32>
  return %rows, %windows, %behind, %3, %read : tensor<3x4x8xf32>, tensor<12x2x2xf32>, tensor<8x3x4xf32>, tensor<12x2xf32>, tensor<6x2x2xf32>
}
