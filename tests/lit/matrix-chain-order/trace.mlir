// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// trace(A B): the mask keeps the diagonal, so nothing else is computed.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-NOT: stablehlo.dot_general
// CHECK: %[[PRODUCT:.*]] = stablehlo.multiply {{.*}} : tensor<{{30x200|200x30}}xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[PRODUCT]] init: {{.*}} across dimensions = [0, 1]
// CHECK: return %[[SUM]] : tensor<f32>

func.func @main(%a: tensor<200x30xf32>, %b: tensor<30x200xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<200x200xf32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<200x30xf32>, tensor<30x200xf32>) -> tensor<200x200xf32>
  %1 = stablehlo.iota dim = 0 : tensor<200x200xi32>
  %2 = stablehlo.iota dim = 1 : tensor<200x200xi32>
  %3 = stablehlo.compare EQ, %1, %2, SIGNED : (tensor<200x200xi32>, tensor<200x200xi32>) -> tensor<200x200xi1>
  %4 = stablehlo.select %3, %0, %zeros : tensor<200x200xi1>, tensor<200x200xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<200x200xf32>, tensor<f32>) -> tensor<f32>
  return %5 : tensor<f32>
}
