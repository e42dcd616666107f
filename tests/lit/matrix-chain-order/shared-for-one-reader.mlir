// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// A B' is needed whole by the exponential; times a vector it is still cheaper made of A and B.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<400x8xf32>, %[[B:[^:]*]]: tensor<300x8xf32>, %[[V:[^:]*]]: tensor<300xf32>
// CHECK: %[[WHOLE:.*]] = stablehlo.dot_general %[[A]], %[[B]]
// CHECK: stablehlo.exponential %[[WHOLE]]
// CHECK: %[[BV:.*]] = stablehlo.dot_general {{%.*}}, {{%.*}}, contracting_dims = {{.*}} -> tensor<8xf32>
// CHECK: %[[ABV:.*]] = stablehlo.dot_general {{.*}}%[[BV]]{{.*}} -> tensor<400xf32>

func.func @main(%a: tensor<400x8xf32>, %b: tensor<300x8xf32>, %v: tensor<300xf32>) -> (tensor<400x300xf32>, tensor<400xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x8xf32>, tensor<300x8xf32>) -> tensor<400x300xf32>
  %1 = stablehlo.exponential %0 : tensor<400x300xf32>
  %2 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  return %1, %2 : tensor<400x300xf32>, tensor<400xf32>
}
