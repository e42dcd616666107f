// RUN: %exla-opt %s --passes=blocked-solve --size-threshold=64KB --split-size=16KB --no-reassociate | filecheck %s

// Blocks round the sums in another order than XLA does, and there is nothing else to do.

// CHECK-NOT: stablehlo.while

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
