// RUN: %exla-opt %s --passes=blocked-solve --size-threshold=64KB --split-size=16KB | filecheck %s
// RUN: %exla-opt %s --passes=blocked-solve --size-threshold=64KB --split-size=16KB --target=gpu | filecheck %s --check-prefix=GPU

// CHECK: stablehlo.while
// GPU-NOT: stablehlo.while

func.func @main(%l: tensor<200x200xf32>, %b: tensor<200x7xf32>) -> tensor<200x7xf32> {
  %x = "stablehlo.triangular_solve"(%l, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<200x200xf32>, tensor<200x7xf32>) -> tensor<200x7xf32>
  return %x : tensor<200x7xf32>
}
