// RUN: %exla-opt %s --passes=reused-products --size-threshold=64KB --remarks=all 2>&1 | filecheck %s

// sum_j p[i,j] (g v')[i,j] is sum_k g[i,k] o[i,k] with o = p v. JAX divides by the sum of each row twice, o does it once.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %{{.*}}, %[[V:.*]]: tensor<200x8xf32>, %[[G:.*]]: tensor<150x8xf32>)
// CHECK: %[[TOTAL:.*]] = stablehlo.reduce({{.*}}) applies stablehlo.add across dimensions = [1]
// CHECK: %[[OUT:.*]] = stablehlo.dot_general %[[V]], %{{.*}}, contracting_dims = [0] x [1]
// CHECK-DAG: %[[ROWS:.*]] = stablehlo.transpose %[[OUT]], dims = [1, 0]
// CHECK-DAG: %[[TERMS:.*]] = stablehlo.multiply {{.*}} : tensor<150x8xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[TERMS]] {{.*}} across dimensions = [1] : (tensor<150x8xf32>,
// CHECK: stablehlo.divide %[[SUM]], %[[TOTAL]] : tensor<150xf32>
// CHECK-NOT: stablehlo.reduce
// CHECK: softmax-gradient.mlir:{{.*}}: remark: 150x200xf32 (120KB) summed over 8x150xf32 instead, a product that is already computed [reused-products, EX012]

func.func @main(%scores: tensor<150x200xf32>, %v: tensor<200x8xf32>, %g: tensor<150x8xf32>) -> (tensor<8x150xf32>, tensor<150x200xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<150x1xf32>
  %e = stablehlo.exponential %scores : tensor<150x200xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x200xf32>, tensor<f32>) -> tensor<150xf32>
  %s_ij = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<150xf32>) -> tensor<150x200xf32>
  %p = stablehlo.divide %e, %s_ij : tensor<150x200xf32>
  %o = stablehlo.dot_general %v, %p, contracting_dims = [0] x [1] : (tensor<200x8xf32>, tensor<150x200xf32>) -> tensor<8x150xf32>
  %column = stablehlo.reshape %s : (tensor<150xf32>) -> tensor<150x1xf32>
  %square = stablehlo.multiply %column, %column : tensor<150x1xf32>
  %inverse = stablehlo.divide %one, %square : tensor<150x1xf32>
  %inverse_ij = stablehlo.broadcast_in_dim %inverse, dims = [0, 1] : (tensor<150x1xf32>) -> tensor<150x200xf32>
  %dp = stablehlo.dot_general %g, %v, contracting_dims = [1] x [1] : (tensor<150x8xf32>, tensor<200x8xf32>) -> tensor<150x200xf32>
  %0 = stablehlo.multiply %dp, %inverse_ij : tensor<150x200xf32>
  %1 = stablehlo.multiply %0, %e : tensor<150x200xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<150x200xf32>, tensor<f32>) -> tensor<150xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<150xf32>) -> tensor<150x200xf32>
  %4 = stablehlo.divide %dp, %s_ij : tensor<150x200xf32>
  %5 = stablehlo.subtract %4, %3 : tensor<150x200xf32>
  %6 = stablehlo.multiply %5, %e : tensor<150x200xf32>
  return %o, %6 : tensor<8x150xf32>, tensor<150x200xf32>
}
