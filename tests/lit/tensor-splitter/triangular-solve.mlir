// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The right-hand sides of a solve are independent: their columns are split, the triangle is used whole.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[L:[^:]*]]: tensor<16x16xf32>, %[[A:[^:]*]]: tensor<16x4xf32>, %[[B:[^:]*]]: tensor<4096x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<256> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<16x16xf32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<8.000000e+00> : tensor<16x16xf32>
// CHECK: %[[IOTA:.*]] = stablehlo.iota dim = 0 : tensor<16x16xi32>
// CHECK: %[[IOTA2:.*]] = stablehlo.iota dim = 1 : tensor<16x16xi32>
// CHECK: %[[COMPARED:.*]] = stablehlo.compare EQ, %[[IOTA]], %[[IOTA2]] : {{.*}} -> tensor<16x16xi1>
// CHECK: %[[CONVERTED:.*]] = stablehlo.convert %[[COMPARED]] : {{.*}} -> tensor<16x16xf32>
// CHECK: %[[PRODUCT:.*]] = stablehlo.multiply %[[CONVERTED]], %[[C]] : tensor<16x16xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[L]], %[[PRODUCT]] : tensor<16x16xf32>
// CHECK-NOT: 16x4096x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[B_TILE:.*]] = stablehlo.dynamic_slice %[[B]], %[[START]], %[[ZERO]], sizes = [256, 4] : {{.*}} -> tensor<256x4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A]], %[[B_TILE]], contracting_dims = [1] x [1] : {{.*}} -> tensor<16x256xf32>
// CHECK: %[[SOLVED:.*]] = "stablehlo.triangular_solve"(%[[SUM]], %[[DOT]]) {{.*}} : {{.*}} -> tensor<16x256xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[SOLVED]], %[[SOLVED]], contracting_dims = [1] x [1] : {{.*}} -> tensor<16x16xf32>
// CHECK: %[[SUM2:.*]] = stablehlo.add %[[TOTAL]], %[[DOT2]] : tensor<16x16xf32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM2]]
// CHECK-NOT: 16x4096x
// CHECK: return %[[LOOP]]#1

func.func @main(%l: tensor<16x16xf32>, %a: tensor<16x4xf32>, %b: tensor<4096x4xf32>) -> tensor<16x16xf32> {
  %0 = stablehlo.iota dim = 0 : tensor<16x16xi32>
  %1 = stablehlo.iota dim = 1 : tensor<16x16xi32>
  %2 = stablehlo.compare EQ, %0, %1 : (tensor<16x16xi32>, tensor<16x16xi32>) -> tensor<16x16xi1>
  %3 = stablehlo.convert %2 : (tensor<16x16xi1>) -> tensor<16x16xf32>
  %eight = stablehlo.constant dense<8.0> : tensor<16x16xf32>
  %4 = stablehlo.multiply %3, %eight : tensor<16x16xf32>
  %5 = stablehlo.add %l, %4 : tensor<16x16xf32>
  %6 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<16x4xf32>, tensor<4096x4xf32>) -> tensor<16x4096xf32>
  %7 = "stablehlo.triangular_solve"(%5, %6) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<16x16xf32>, tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %8 = stablehlo.dot_general %7, %7, contracting_dims = [1] x [1] : (tensor<16x4096xf32>, tensor<16x4096xf32>) -> tensor<16x16xf32>
  return %8 : tensor<16x16xf32>
}
