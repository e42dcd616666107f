// RUN: not %exla-opt %s -o %t.out 2>&1 | filecheck %s
// RUN: not cat %t.out

// One diagnostic with the line and a caret, and no output file.

// CHECK: error-undeclared-value.mlir:12:26: error: use of undeclared SSA value name
// CHECK-NEXT: {{^}}  %0 = stablehlo.add %a, %nothing : tensor<4xf32>
// CHECK-NEXT: {{^}}                         ^
// CHECK-NOT: {{.}}

func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %nothing : tensor<4xf32>
  return %0 : tensor<4xf32>
}
