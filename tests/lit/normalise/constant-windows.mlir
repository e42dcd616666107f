// RUN: %exla-opt %s --passes=normalise,rce --quiet | filecheck %s

// One window at a known place is a slice, or an update; a window that is read elsewhere is a dynamic slice.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x6xf32>, %[[U:[^:]*]]: tensor<6x4xf32>, %[[V:[^:]*]]: tensor<8xf32>
// CHECK-DAG: %[[ONE:.*]] = stablehlo.constant dense<1> : tensor<i32>
// CHECK-DAG: %[[FIVE:.*]] = stablehlo.constant dense<5> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK: %[[SET:.*]] = stablehlo.dynamic_update_slice %[[X]], %[[U]], %[[ONE]], %[[ONE]]
// CHECK: %[[COLUMN:.*]] = stablehlo.reshape %[[V]] : (tensor<8xf32>) -> tensor<8x1xf32>
// CHECK: %[[OLD:.*]] = stablehlo.slice %[[SET]] [0:8, 5:6]
// CHECK: %[[NEW:.*]] = stablehlo.add %[[OLD]], %[[COLUMN]]
// CHECK: %[[ADDED:.*]] = stablehlo.dynamic_update_slice %[[SET]], %[[NEW]], %[[ZERO]], %[[FIVE]]
// CHECK: %[[ROW:.*]] = stablehlo.slice %[[ADDED]] [7:8, 0:6]
// CHECK: %[[READ:.*]] = stablehlo.reshape %[[ROW]] : (tensor<1x6xf32>) -> tensor<6xf32>
// CHECK: %[[LAST:.*]] = stablehlo.dynamic_slice %[[ADDED]], %{{.*}}, %[[ZERO]], sizes = [1, 6]
// CHECK: %[[CLAMPED:.*]] = stablehlo.reshape %[[LAST]] : (tensor<1x6xf32>) -> tensor<6xf32>
// CHECK: return %[[ADDED]], %[[READ]], %[[CLAMPED]]

func.func @main(%x: tensor<8x6xf32>, %u: tensor<6x4xf32>, %v: tensor<8xf32>) -> (tensor<8x6xf32>, tensor<6xf32>, tensor<6xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.reshape %one : (tensor<i32>) -> tensor<1xi32>
  %both = stablehlo.concatenate %0, %0, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %set = "stablehlo.scatter"(%x, %both, %u) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1]>, unique_indices = true}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<2xi32>, tensor<6x4xf32>) -> tensor<8x6xf32>
  %five = stablehlo.constant dense<5> : tensor<1xi32>
  %added = "stablehlo.scatter"(%set, %five, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<1xi32>, tensor<8xf32>) -> tensor<8x6xf32>
  %seven = stablehlo.constant dense<7> : tensor<1xi32>
  %row = "stablehlo.gather"(%added, %seven) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 6>}> : (tensor<8x6xf32>, tensor<1xi32>) -> tensor<6xf32>
  %nine = stablehlo.constant dense<9> : tensor<1xi32>
  %clamped = "stablehlo.gather"(%added, %nine) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 6>}> : (tensor<8x6xf32>, tensor<1xi32>) -> tensor<6xf32>
  return %added, %row, %clamped : tensor<8x6xf32>, tensor<6xf32>, tensor<6xf32>
}
