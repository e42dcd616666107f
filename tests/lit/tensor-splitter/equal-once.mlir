// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The gradient of a minimum asks which elements it has left alone. Two loops that make them again may round them
// otherwise, and a gradient that takes one side in one sum and the other side in the next is nobody's: one loop asks, and
// the next reads the answers.

// CHECK: %[[FIRST:.*]]:3 = stablehlo.while({{.*}}) : tensor<i32>, tensor<200x300xi1>, tensor<300xf32>
// CHECK: %[[MASK:.*]] = stablehlo.compare EQ, {{.*}} -> tensor<25x300xi1>
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %[[MASK]]
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.compare EQ
// CHECK: stablehlo.dynamic_slice %[[FIRST]]#1

func.func @main(%a: tensor<200x8xf32>, %b: tensor<300x8xf32>) -> tensor<200xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<200x8xf32>, tensor<300x8xf32>) -> tensor<200x300xf32>
  %one = stablehlo.constant dense<1.0> : tensor<200x300xf32>
  %none = stablehlo.constant dense<0.0> : tensor<200x300xf32>
  %1 = stablehlo.minimum %0, %one : tensor<200x300xf32>
  %2 = stablehlo.compare EQ, %0, %1, FLOAT : (tensor<200x300xf32>, tensor<200x300xf32>) -> tensor<200x300xi1>
  %3 = stablehlo.select %2, %0, %none : tensor<200x300xi1>, tensor<200x300xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<200x300xf32>, tensor<f32>) -> tensor<300xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [1] : (tensor<300xf32>) -> tensor<200x300xf32>
  %6 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<200x300xf32>, tensor<f32>) -> tensor<200xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0] : (tensor<200xf32>) -> tensor<200x300xf32>
  %8 = stablehlo.multiply %3, %5 : tensor<200x300xf32>
  %9 = stablehlo.multiply %8, %7 : tensor<200x300xf32>
  %10 = stablehlo.reduce(%9 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<200x300xf32>, tensor<f32>) -> tensor<200xf32>
  return %10 : tensor<200xf32>
}
