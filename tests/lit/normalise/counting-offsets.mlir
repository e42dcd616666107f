// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Rows 1 to 7, backwards: the indices and the updates, which are small, are put in the place of their rows. Row 0 gets an
// index that is gathered for nothing, or that lies outside, where nothing is written.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x50xf32>, %[[I:[^:]*]]: tensor<7x1xi32>, %[[V:[^:]*]]: tensor<7xf32>
// CHECK-DAG: %[[NOWHERE:.*]] = stablehlo.constant dense<-1> : tensor<i32>
// CHECK-DAG: %[[ANYWHERE:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[BACKWARDS:.*]] = stablehlo.reverse %[[I]], dims = [0]
// CHECK-DAG: %[[READ:.*]] = stablehlo.pad %[[BACKWARDS]], %[[ANYWHERE]], low = [1, 0], high = [0, 0], interior = [0, 0]
// CHECK: %[[PICKED:.*]] = "stablehlo.gather"(%[[X]], %[[READ]])
// CHECK-SAME: operand_batching_dims = [0]
// CHECK: %[[ROWS:.*]] = stablehlo.slice %[[PICKED]] [1:8]
// CHECK-DAG: %[[RESULT:.*]] = stablehlo.reverse %[[ROWS]], dims = [0]
// CHECK-DAG: %[[WRITTEN:.*]] = stablehlo.pad %[[BACKWARDS]], %[[NOWHERE]], low = [1, 0], high = [0, 0], interior = [0, 0]
// CHECK: "stablehlo.scatter"(%[[X]], %[[WRITTEN]], %{{.*}})
// CHECK-SAME: input_batching_dims = [0]

func.func @main(%x: tensor<8x50xf32>, %i: tensor<7x1xi32>, %v: tensor<7xf32>) -> (tensor<7xf32>, tensor<8x50xf32>) {
  %count = stablehlo.iota dim = 0 : tensor<7x1xi32>
  %seven = stablehlo.constant dense<7> : tensor<7x1xi32>
  %rows = stablehlo.subtract %seven, %count : tensor<7x1xi32>
  %index = stablehlo.concatenate %rows, %i, dim = 1 : (tensor<7x1xi32>, tensor<7x1xi32>) -> tensor<7x2xi32>
  %picked = "stablehlo.gather"(%x, %index) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<8x50xf32>, tensor<7x2xi32>) -> tensor<7xf32>
  %set = "stablehlo.scatter"(%x, %index, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<8x50xf32>, tensor<7x2xi32>, tensor<7xf32>) -> tensor<8x50xf32>
  return %picked, %set : tensor<7xf32>, tensor<8x50xf32>
}
