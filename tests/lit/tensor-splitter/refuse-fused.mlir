// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --remarks=missed 2>&1 | filecheck %s

// XLA computes this on the fly, in the reduce over eight elements: there is nothing to save.

// CHECK-NOT: stablehlo.while
// CHECK: %[[BIG:.*]] = stablehlo.subtract {{.*}} : tensor<128x128x8xf32>
// CHECK-NEXT: stablehlo.reduce(%[[BIG]] init: {{.*}}) applies stablehlo.add across dimensions = [2]
// CHECK-NOT: stablehlo.while
// CHECK: refuse-fused.mlir:{{[0-9]+}}:8: remark: 128x128x8xf32 (524KB) not split: XLA fuses it into its readers: it is never in memory [tensor-splitter, EX101]
// CHECK: refuse-fused.mlir:{{[0-9]+}}:8: remark: 128x128x8xf32 (524KB) not split: XLA fuses it into its readers: it is never in memory [tensor-splitter, EX101]
// CHECK: refuse-fused.mlir:{{[0-9]+}}:8: remark: 128x128x8xf32 (524KB) not split: XLA fuses it into its readers: it is never in memory [tensor-splitter, EX101]

func.func @main(%a: tensor<128xf32>, %b: tensor<128x8xf32>) -> tensor<128x128xf32> {
  %0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<128xf32>) -> tensor<128x128x8xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<128x8xf32>) -> tensor<128x128x8xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<128x128x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<128x128x8xf32>, tensor<f32>) -> tensor<128x128xf32>
  return %3 : tensor<128x128xf32>
}
