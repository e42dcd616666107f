// RUN: %exla-opt %s --passes=cse | filecheck %s

// Of two equal ops one is left; an op that differs stays.

// CHECK-LABEL: func.func public @main
// CHECK: [[SINE:%.+]] = stablehlo.sine
// CHECK-NOT: stablehlo.sine
// CHECK: [[COSINE:%.+]] = stablehlo.cosine
// CHECK: [[SUM:%.+]] = stablehlo.add [[SINE]], [[SINE]]
// CHECK: stablehlo.add [[SUM]], [[COSINE]]
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x : tensor<4xf32>
  %1 = stablehlo.cosine %x : tensor<4xf32>
  %2 = stablehlo.sine %x : tensor<4xf32>
  %3 = stablehlo.add %0, %2 : tensor<4xf32>
  %4 = stablehlo.add %3, %1 : tensor<4xf32>
  return %4 : tensor<4xf32>
}
