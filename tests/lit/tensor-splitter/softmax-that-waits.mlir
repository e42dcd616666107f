// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --remarks=all 2>&1 | filecheck %s

// The sum below the largest score is taken in the loop that finds that one. What is made of the complete softmax, and no
// product of it, needs a second loop, which computes its scores once more.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(
// CHECK: stablehlo.reduce({{.*}} applies stablehlo.maximum
// CHECK: stablehlo.reduce({{.*}} applies stablehlo.add
// CHECK: stablehlo.while(
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general {{.*}} -> tensor<1024xf32>
// CHECK: %[[MAX:.*]] = stablehlo.broadcast_in_dim %[[LOOP]]#1
// CHECK: stablehlo.subtract %[[SCORES]], %[[MAX]]
// CHECK: stablehlo.tanh
// CHECK-NOT: stablehlo.while
// CHECK: softmax-that-waits.mlir:{{.*}}: remark: 65536xf32 (262KB) split over dimension 0 (65536): 64 tiles of 1024 then 64 tiles of 1024, with 6 more big tensors [tensor-splitter, EX001]

func.func @main(%q: tensor<4xf32>, %k: tensor<65536x4xf32>, %v: tensor<65536x4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.dot_general %k, %q, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<65536xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<65536xf32>
  %4 = stablehlo.exponential %3 : tensor<65536xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<f32>) -> tensor<65536xf32>
  %p = stablehlo.divide %4, %6 : tensor<65536xf32>
  %7 = stablehlo.tanh %p : tensor<65536xf32>
  %8 = stablehlo.dot_general %7, %v, contracting_dims = [0] x [0] : (tensor<65536xf32>, tensor<65536x4xf32>) -> tensor<4xf32>
  return %8 : tensor<4xf32>
}
