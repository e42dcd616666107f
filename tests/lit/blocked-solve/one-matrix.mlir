// RUN: %exla-opt %s --passes=blocked-solve --size-threshold=64KB --split-size=16KB --remarks=passed 2>&1 | filecheck %s

// A loop over groups of right-hand sides, in it one over four blocks of 50 rows, in it one over the blocks that are solved already.

// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK: stablehlo.triangular_solve
// CHECK-SAME: tensor<50x50xf32>
// CHECK: return
// CHECK: remark: {{.*}} solved block by block in the memory of the right-hand sides

func.func @main(%l: tensor<200x200xf32>, %b: tensor<200x7xf32>) -> tensor<200x7xf32> {
  %hundred = stablehlo.constant dense<100.0> : tensor<200x200xf32>
  %row = stablehlo.iota dim = 0 : tensor<200x200xi32>
  %column = stablehlo.iota dim = 1 : tensor<200x200xi32>
  %on_diagonal = stablehlo.compare EQ, %row, %column, SIGNED : (tensor<200x200xi32>, tensor<200x200xi32>) -> tensor<200x200xi1>
  %identity = stablehlo.convert %on_diagonal : (tensor<200x200xi1>) -> tensor<200x200xf32>
  %small = stablehlo.divide %l, %hundred : tensor<200x200xf32>
  %a = stablehlo.add %small, %identity : tensor<200x200xf32>
  %x = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<200x200xf32>, tensor<200x7xf32>) -> tensor<200x7xf32>
  return %x : tensor<200x7xf32>
}
