// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The second result is made of %p as well: XLA computes it in a kernel that might run after %p is written over, and would
// copy all of %p in every trip.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[P:[^:]*]]: tensor<4096x16xf32> {tf.aliasing_output = 0 : i32}
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4096x16xf32>
// CHECK: stablehlo.while({{.*}}, %{{.*}} = %[[ZEROS]], %{{.*}} = %[[ZEROS]])
// CHECK: stablehlo.dynamic_slice %[[P]],

func.func @main(%p: tensor<4096x16xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<512x16xf32>) -> (tensor<4096x16xf32>, tensor<4096x16xf32>) {
  %0 = stablehlo.dot_general %x, %p, contracting_dims = [1] x [1] : (tensor<512x16xf32>, tensor<4096x16xf32>) -> tensor<512x4096xf32>
  %1 = stablehlo.tanh %0 : tensor<512x4096xf32>
  %2 = stablehlo.dot_general %1, %x, contracting_dims = [0] x [0] : (tensor<512x4096xf32>, tensor<512x16xf32>) -> tensor<4096x16xf32>
  %3 = stablehlo.subtract %p, %2 : tensor<4096x16xf32>
  %4 = stablehlo.cosine %p : tensor<4096x16xf32>
  %5 = stablehlo.multiply %4, %2 : tensor<4096x16xf32>
  return %3, %5 : tensor<4096x16xf32>, tensor<4096x16xf32>
}
