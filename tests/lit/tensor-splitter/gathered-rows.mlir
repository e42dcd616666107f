// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Sorted rows at positions known only at run time: rows of %a are gathered, slice by slice, and no others are sorted.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<4x200xf32>, %[[ROWS:[^:]*]]: tensor<256x1xi32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[READ:.*]] = "stablehlo.gather"(%[[A]], %[[ROWS]]) {{.*}}slice_sizes = array<i64: 1, 4>{{.*}} -> tensor<256x4xf32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[TILE_OF_A:.*]] = stablehlo.dynamic_slice %[[READ]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[TILE_OF_A]], %[[B]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SORTED:.*]] = "stablehlo.sort"(%[[DOT]]) <{dimension = 1 : i64
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[SORTED]] : tensor<32x200xf32>
// CHECK: %[[SUMS:.*]] = stablehlo.reduce(%[[EXP]] init: %{{.*}}) applies stablehlo.add across dimensions = [1] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[SUMS]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%a: tensor<256x4xf32>, %b: tensor<4x200xf32>, %rows: tensor<256x1xi32>) -> tensor<256xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<256x4xf32>, tensor<4x200xf32>) -> tensor<256x200xf32>
  %1 = "stablehlo.sort"(%0) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%left: tensor<f32>, %right: tensor<f32>):
    %less = stablehlo.compare LT, %left, %right : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<256x200xf32>) -> tensor<256x200xf32>
  %2 = "stablehlo.gather"(%1, %rows) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 200>}> : (tensor<256x200xf32>, tensor<256x1xi32>) -> tensor<256x200xf32>
  %3 = stablehlo.exponential %2 : tensor<256x200xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  return %4 : tensor<256xf32>
}
