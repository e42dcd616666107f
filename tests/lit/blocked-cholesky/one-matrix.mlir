// RUN: %exla-opt %s --passes=blocked-cholesky --size-threshold=64KB --split-size=16KB | filecheck %s
// RUN: %exla-opt %s --passes=blocked-cholesky --size-threshold=64KB --split-size=16KB --target=gpu | filecheck %s --check-prefix=GPU

// CHECK: stablehlo.while
// GPU-NOT: stablehlo.while

func.func @main(%k: tensor<200x200xf32>) -> tensor<200x200xf32> {
  %l = stablehlo.cholesky %k, lower = true : tensor<200x200xf32>
  return %l : tensor<200x200xf32>
}
