// RUN: %exla-opt %s --passes=blocked-cholesky --size-threshold=64KB --split-size=16KB --remarks=passed 2>&1 | filecheck %s

// A matrix of 200 rows in blocks of 50: a loop over columns of blocks, in it one that sums for the block of the diagonal, and one over
// the blocks below. The last one fills a factor that does not exist with NaN. The selection of the triangle has nothing left to do.

// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK: stablehlo.cholesky {{.*}}, lower = true : tensor<50x50xf32>
// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK: stablehlo.triangular_solve
// CHECK: %[[FACTOR:.*]]:2 = stablehlo.while
// CHECK: return %[[FACTOR]]#1 : tensor<200x200xf32>
// CHECK: remark: {{.*}} factored block by block in the memory of the matrix

func.func @main(%x: tensor<200x4xf32>) -> tensor<200x200xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<200x200xf32>
  %row = stablehlo.iota dim = 0 : tensor<200x200xi32>
  %column = stablehlo.iota dim = 1 : tensor<200x200xi32>
  %on_diagonal = stablehlo.compare EQ, %row, %column, SIGNED : (tensor<200x200xi32>, tensor<200x200xi32>) -> tensor<200x200xi1>
  %in_triangle = stablehlo.compare GE, %row, %column, SIGNED : (tensor<200x200xi32>, tensor<200x200xi32>) -> tensor<200x200xi1>
  %identity = stablehlo.convert %on_diagonal : (tensor<200x200xi1>) -> tensor<200x200xf32>
  %products = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<200x4xf32>, tensor<200x4xf32>) -> tensor<200x200xf32>
  %k = stablehlo.add %products, %identity : tensor<200x200xf32>
  %l = stablehlo.cholesky %k, lower = true : tensor<200x200xf32>
  %r = stablehlo.select %in_triangle, %l, %zero : tensor<200x200xi1>, tensor<200x200xf32>
  return %r : tensor<200x200xf32>
}
