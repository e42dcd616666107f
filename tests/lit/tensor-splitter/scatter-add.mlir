// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The gradient of an embedding: each tile adds its rows to the table that the loop carries.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4096x4xf32>, %[[B:[^:]*]]: tensor<16x4xf32>, %[[TOKEN:[^:]*]]: tensor<4096x1xi32>, %[[TABLE:[^:]*]]: tensor<10x16xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<256> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 4096x16x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[TABLE]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [256, 4] : {{.*}} -> tensor<256x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<256x16xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<256x16xf32>
// CHECK: %[[TOKEN_TILE:.*]] = stablehlo.dynamic_slice %[[TOKEN]], %[[START]], %[[ZERO]], sizes = [256, 1] : {{.*}} -> tensor<256x1xi32>
// CHECK: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[TOTAL]], %[[TOKEN_TILE]], %[[EXP]]) {{.*}} ({
// CHECK: stablehlo.return %{{.*}}, %[[SCATTER]]
// CHECK-NOT: 4096x16x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<4096x4xf32>, %b: tensor<16x4xf32>, %token: tensor<4096x1xi32>, %table: tensor<10x16xf32>) -> tensor<10x16xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4096x4xf32>, tensor<16x4xf32>) -> tensor<4096x16xf32>
  %1 = stablehlo.exponential %0 : tensor<4096x16xf32>
  %2 = "stablehlo.scatter"(%table, %token, %1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %3 = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }) : (tensor<10x16xf32>, tensor<4096x1xi32>, tensor<4096x16xf32>) -> tensor<10x16xf32>
  return %2 : tensor<10x16xf32>
}
