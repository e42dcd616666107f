// RUN: %exla-opt %s --passes=blocked-cholesky --size-threshold=64KB --split-size=16KB --remarks=passed 2>&1 | filecheck %s

// An upper factor by way of the lower one of the transpose is computed as it is. Who reads either of them reads that one.

// CHECK-NOT: stablehlo.transpose
// CHECK: stablehlo.cholesky %{{[^ ]*}} : tensor<50x50xf32>
// CHECK: stablehlo.dot_general %[[FACTOR:.*]]#1, %arg1, contracting_dims = [1] x [0]
// CHECK: "stablehlo.triangular_solve"(%[[FACTOR]]#1, {{.*}} lower = false, transpose_a = #stablehlo<transpose TRANSPOSE>
// CHECK: return {{.*}}, %[[FACTOR]]#1
// CHECK: remark: {{.*}} factored block by block in the memory of the matrix

func.func @main(%x: tensor<200x200xf32>, %y: tensor<200x3xf32>) -> (tensor<200x3xf32>, tensor<200x200xf32>) {
  %squares = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<200x200xf32>, tensor<200x200xf32>) -> tensor<200x200xf32>
  %i = stablehlo.iota dim = 0 : tensor<200x200xi32>
  %j = stablehlo.iota dim = 1 : tensor<200x200xi32>
  %e = stablehlo.compare EQ, %i, %j, SIGNED : (tensor<200x200xi32>, tensor<200x200xi32>) -> tensor<200x200xi1>
  %one = stablehlo.convert %e : (tensor<200x200xi1>) -> tensor<200x200xf32>
  %k = stablehlo.add %squares, %one : tensor<200x200xf32>
  %t = stablehlo.transpose %k, dims = [1, 0] : (tensor<200x200xf32>) -> tensor<200x200xf32>
  %l = stablehlo.cholesky %t, lower = true : tensor<200x200xf32>
  %u = stablehlo.transpose %l, dims = [1, 0] : (tensor<200x200xf32>) -> tensor<200x200xf32>
  %p = stablehlo.dot_general %l, %y, contracting_dims = [0] x [0] : (tensor<200x200xf32>, tensor<200x3xf32>) -> tensor<200x3xf32>
  %s = "stablehlo.triangular_solve"(%l, %p) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<200x200xf32>, tensor<200x3xf32>) -> tensor<200x3xf32>
  return %s, %u : tensor<200x3xf32>, tensor<200x200xf32>
}
