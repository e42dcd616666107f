// RUN: %exla-opt %s --passes=normalise,matrix-chain-order | filecheck %s

// diag(A B) as JAX writes it, a gather at (0, 0), (1, 1), ...: only the diagonal is computed.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<200x30xf32>, %[[B:[^:]*]]: tensor<30x200xf32>
// CHECK-NOT: 200x200x
// CHECK: %[[PRODUCT:.*]] = stablehlo.multiply {{.*}} : tensor<{{30x200|200x30}}xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[PRODUCT]] init: {{.*}} applies stablehlo.add
// CHECK: return %[[SUM]]

func.func @main(%a: tensor<200x30xf32>, %b: tensor<30x200xf32>) -> tensor<200xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<200x30xf32>, tensor<30x200xf32>) -> tensor<200x200xf32>
  %1 = stablehlo.iota dim = 0 : tensor<200xi32>
  %zero = stablehlo.constant dense<0> : tensor<200xi32>
  %size = stablehlo.constant dense<200> : tensor<200xi32>
  %2 = stablehlo.compare LT, %1, %zero, SIGNED : (tensor<200xi32>, tensor<200xi32>) -> tensor<200xi1>
  %3 = stablehlo.add %1, %size : tensor<200xi32>
  %4 = stablehlo.select %2, %3, %1 : tensor<200xi1>, tensor<200xi32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<200xi32>) -> tensor<200x1xi32>
  %6 = stablehlo.concatenate %5, %5, dim = 1 : (tensor<200x1xi32>, tensor<200x1xi32>) -> tensor<200x2xi32>
  %7 = "stablehlo.gather"(%0, %6) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<200x200xf32>, tensor<200x2xi32>) -> tensor<200xf32>
  return %7 : tensor<200xf32>
}
