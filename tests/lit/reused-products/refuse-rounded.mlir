// RUN: %exla-opt %s --passes=reused-products --size-threshold=64KB --remarks=all 2>&1 | filecheck %s

// p v is rounded to bf16, and the sum is not.

// CHECK: stablehlo.reduce({{.*}} across dimensions = [1] : (tensor<150x200xf32>,
// CHECK: refuse-rounded.mlir:{{.*}}: remark: 150x200xf32 (120KB) not summed over 150x8xbf16 instead, a product that is already computed: it is rounded to fewer digits [reused-products, EX502]

func.func @main(%p: tensor<150x200xf32>, %v: tensor<200x8xf32>, %g: tensor<150x8xf32>) -> (tensor<150x8xbf16>, tensor<150xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %o = stablehlo.dot_general %p, %v, contracting_dims = [1] x [0] : (tensor<150x200xf32>, tensor<200x8xf32>) -> tensor<150x8xbf16>
  %dp = stablehlo.dot_general %g, %v, contracting_dims = [1] x [1] : (tensor<150x8xf32>, tensor<200x8xf32>) -> tensor<150x200xf32>
  %0 = stablehlo.multiply %dp, %p : tensor<150x200xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x200xf32>, tensor<f32>) -> tensor<150xf32>
  return %o, %1 : tensor<150x8xbf16>, tensor<150xf32>
}
