// RUN: %exla-opt %s --passes=normalise,tensor-splitter --size-threshold=10KB --split-size=6KB | filecheck %s
// RUN: %exla-opt %s --passes=normalise,tensor-splitter --size-threshold=17KB | filecheck %s --check-prefix=SMALL

// Two of the three gradients of the same weights, each as large as the weights, are added to one another: they are one
// carry. The third one is a result of its own, and stays a sum of its own. Sums stay as they are if they are no larger
// than a slice together.

// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>
// CHECK: return %[[LOOP]]#1, %[[LOOP]]#2

// SMALL: %[[LOOP:.*]]:4 = stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>
// SMALL: %[[SUM:.*]] = stablehlo.add %[[LOOP]]#1, %[[LOOP]]#2
// SMALL: return %[[SUM]], %[[LOOP]]#3

func.func @main(%w: tensor<64x32xf32>, %x: tensor<512x64xf32>, %y: tensor<512x64xf32>) -> (tensor<64x32xf32>, tensor<64x32xf32>) {
  %xw = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<512x64xf32>, tensor<64x32xf32>) -> tensor<512x32xf32>
  %s = stablehlo.sine %xw : tensor<512x32xf32>
  %back = stablehlo.dot_general %s, %w, contracting_dims = [1] x [1] : (tensor<512x32xf32>, tensor<64x32xf32>) -> tensor<512x64xf32>
  %c = stablehlo.cosine %back : tensor<512x64xf32>
  %again = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : (tensor<512x64xf32>, tensor<64x32xf32>) -> tensor<512x32xf32>
  %d = stablehlo.tanh %again : tensor<512x32xf32>
  %1 = stablehlo.dot_general %x, %s, contracting_dims = [0] x [0] : (tensor<512x64xf32>, tensor<512x32xf32>) -> tensor<64x32xf32>
  %2 = stablehlo.dot_general %y, %d, contracting_dims = [0] x [0] : (tensor<512x64xf32>, tensor<512x32xf32>) -> tensor<64x32xf32>
  %3 = stablehlo.dot_general %c, %d, contracting_dims = [0] x [0] : (tensor<512x64xf32>, tensor<512x32xf32>) -> tensor<64x32xf32>
  %sum = stablehlo.add %1, %2 : tensor<64x32xf32>
  return %sum, %3 : tensor<64x32xf32>, tensor<64x32xf32>
}
