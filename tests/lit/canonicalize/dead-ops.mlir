// RUN: %exla-opt %s --passes=canonicalize | filecheck %s

// A dead op goes; adding zero is not folded, for that is no business of MLIR's own pass.

// CHECK-LABEL: func.func public @main
// CHECK: [[ZERO:%.+]] = stablehlo.constant
// CHECK-NOT: stablehlo.sine
// CHECK: stablehlo.add %{{.+}}, [[ZERO]]
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0 = stablehlo.sine %x : tensor<4xf32>
  %1 = stablehlo.add %x, %zero : tensor<4xf32>
  return %1 : tensor<4xf32>
}
