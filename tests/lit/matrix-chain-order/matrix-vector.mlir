// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// (A B') v -> A (B' v), through a transpose and a scalar factor, which goes into the smallest operand.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<400x8xf32>, %[[B:[^:]*]]: tensor<300x8xf32>, %[[V:[^:]*]]: tensor<300xf32>
// CHECK-NOT: 400x300x
// CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[V]], %{{.*}} : tensor<300xf32>
// CHECK: %[[ROW:.*]] = stablehlo.dot_general %[[B]], %[[SCALED]], contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<8xf32>
// CHECK: %[[RESULT:.*]] = stablehlo.dot_general %[[A]], %[[ROW]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : {{.*}} -> tensor<400xf32>
// CHECK: return %[[RESULT]]

func.func @main(%a: tensor<400x8xf32>, %b: tensor<300x8xf32>, %v: tensor<300xf32>) -> tensor<400xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<400x300xf32>
  %0 = stablehlo.transpose %b, dims = [1, 0] : (tensor<300x8xf32>) -> tensor<8x300xf32>
  %1 = stablehlo.dot_general %a, %0, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<400x8xf32>, tensor<8x300xf32>) -> tensor<400x300xf32>
  %2 = stablehlo.multiply %1, %half : tensor<400x300xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  return %3 : tensor<400xf32>
}
