// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=10KB | filecheck %s

// The weighted differences as einsum writes them: the difference is the operand of a dot.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<40x64xf32>, %[[B:[^:]*]]: tensor<50x64xf32>, %[[W:[^:]*]]: tensor<40x50xf32>
// CHECK-NOT: 40x50x64
// CHECK: %[[MOVED:.*]] = stablehlo.subtract %[[A]],
// CHECK: %[[TOTAL:.*]] = stablehlo.reduce(%[[W]]
// CHECK: %[[WIDE:.*]] = stablehlo.broadcast_in_dim %[[TOTAL]], dims = [0]
// CHECK: %[[FIRST:.*]] = stablehlo.multiply %[[MOVED]], %[[WIDE]]
// CHECK: %[[OTHER:.*]] = stablehlo.subtract %[[B]],
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[W]], %[[OTHER]], contracting_dims = [1] x [0]{{.*}} -> tensor<40x64xf32>
// CHECK: stablehlo.add %[[FIRST]],

func.func @main(%a: tensor<40x64xf32>, %b: tensor<50x64xf32>, %w: tensor<40x50xf32>) -> tensor<40x64xf32> {
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<40x64xf32>) -> tensor<40x50x64xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<50x64xf32>) -> tensor<40x50x64xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<40x50x64xf32>
  %3 = stablehlo.dot_general %w, %2, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<40x50xf32>, tensor<40x50x64xf32>) -> tensor<40x64xf32>
  return %3 : tensor<40x64xf32>
}
