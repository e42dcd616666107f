// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=1500KB --split-size=200KB | filecheck %s

// What the loop writes into waits for the loop's input: zeros from a constant would be in memory from the start.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[OTHER:.*]] = stablehlo.constant dense<1.000000e+00> : tensor<f32>
// CHECK: %[[FACTOR:.*]] = stablehlo.cholesky
// CHECK: %[[FIRST:.*]] = stablehlo.slice %[[FACTOR]] [0:1, 0:1]
// CHECK: %[[NUMBER:.*]] = stablehlo.reshape %[[FIRST]] : (tensor<1x1xf32>) -> tensor<f32>
// CHECK-DAG: %[[BELOW:.*]] = stablehlo.compare LT, %[[NUMBER]], %[[ZEROS]]
// CHECK-DAG: %[[ABOVE:.*]] = stablehlo.compare GT, %[[NUMBER]], %[[ZEROS]]
// CHECK: %[[NEVER:.*]] = stablehlo.and %[[BELOW]], %[[ABOVE]] : tensor<i1>
// CHECK: %[[START:.*]] = stablehlo.select %[[NEVER]], %[[OTHER]], %[[ZEROS]]
// CHECK: %[[WHOLE:.*]] = stablehlo.broadcast_in_dim %[[START]], dims = [] : (tensor<f32>) -> tensor<600x500xf32>
// CHECK: stablehlo.while({{.*}} = %[[WHOLE]])
func.func @main(%x: tensor<600x600xf32>, %y: tensor<600x2400xf32>, %z: tensor<500x2400xf32>) -> tensor<600x500xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %eye = stablehlo.iota dim = 0 : tensor<600x600xi32>
  %columns = stablehlo.iota dim = 1 : tensor<600x600xi32>
  %diagonal = stablehlo.compare EQ, %eye, %columns : (tensor<600x600xi32>, tensor<600x600xi32>) -> tensor<600x600xi1>
  %many = stablehlo.constant dense<900.0> : tensor<600x600xf32>
  %none = stablehlo.constant dense<0.0> : tensor<600x600xf32>
  %ridge = stablehlo.select %diagonal, %many, %none : tensor<600x600xi1>, tensor<600x600xf32>
  %tanh = stablehlo.tanh %x : tensor<600x600xf32>
  %sum = stablehlo.add %tanh, %ridge : tensor<600x600xf32>
  %factor = stablehlo.cholesky %sum, lower = true : tensor<600x600xf32>
  %big = stablehlo.dot_general %factor, %y, contracting_dims = [1] x [0]
    : (tensor<600x600xf32>, tensor<600x2400xf32>) -> tensor<600x2400xf32>
  %exp = stablehlo.tanh %big : tensor<600x2400xf32>
  %back = stablehlo.dot_general %exp, %z, contracting_dims = [1] x [1]
    : (tensor<600x2400xf32>, tensor<500x2400xf32>) -> tensor<600x500xf32>
  return %back : tensor<600x500xf32>
}
