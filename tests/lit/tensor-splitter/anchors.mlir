// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=32KB --split-size=16KB | filecheck %s

// Each product of a square matrix needs all rows of the tensor before it, which a loop therefore stores: the next loop
// reads slices of it, and recomputes nothing of the loops before.

// CHECK: %[[Y:.*]]:2 = stablehlo.while
// CHECK-COUNT-2: stablehlo.dot_general
// CHECK-NOT: stablehlo.dot_general
// CHECK: %[[Z:.*]]:2 = stablehlo.while
// CHECK: %[[SLICE:.*]] = stablehlo.dynamic_slice %[[Y]]#1
// CHECK: stablehlo.dot_general %[[SLICE]], %[[Y]]#1
// CHECK: stablehlo.dot_general %{{.*}}, %[[Y]]#1
// CHECK-NOT: stablehlo.dot_general
// CHECK: stablehlo.while
// CHECK: %[[SLICE:.*]] = stablehlo.dynamic_slice %[[Z]]#1
// CHECK: stablehlo.dot_general %[[SLICE]], %[[Z]]#1
// CHECK: stablehlo.dot_general %{{.*}}, %[[Z]]#1
// CHECK-NOT: stablehlo.dot_general

func.func @main(%x: tensor<512x32xf32>) -> tensor<512x32xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<512x32xf32>) -> tensor<512x512xf32>
  %1 = stablehlo.tanh %0 : tensor<512x512xf32>
  %y = stablehlo.dot_general %1, %x, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x32xf32>) -> tensor<512x32xf32>
  %2 = stablehlo.dot_general %y, %y, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<512x32xf32>) -> tensor<512x512xf32>
  %3 = stablehlo.tanh %2 : tensor<512x512xf32>
  %z = stablehlo.dot_general %3, %y, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x32xf32>) -> tensor<512x32xf32>
  %4 = stablehlo.dot_general %z, %z, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<512x32xf32>) -> tensor<512x512xf32>
  %5 = stablehlo.tanh %4 : tensor<512x512xf32>
  %6 = stablehlo.dot_general %5, %z, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x32xf32>) -> tensor<512x32xf32>
  return %6 : tensor<512x32xf32>
}
