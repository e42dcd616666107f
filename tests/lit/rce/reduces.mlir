// RUN: %exla-opt %s --passes=rce | filecheck %s

// A reduce over sizes of 1 is a reshape where its init is the identity; any other is left to be counted.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x6x1xf32>, %[[Y:[^:]*]]: tensor<6x5xf32>, %[[V:[^:]*]]: tensor<6xf32>
// CHECK-DAG: %[[PLAIN:.*]] = stablehlo.reshape %[[X]] : (tensor<1x6x1xf32>) -> tensor<6xf32>
// CHECK-DAG: %[[COUNTED:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.add across dimensions = [0, 2]
// CHECK-DAG: %[[SUM:.*]] = stablehlo.reduce(%[[Y]] init: %{{.*}}) applies stablehlo.add across dimensions = [1] : {{.*}} -> tensor<6xf32>
// CHECK-NOT: tensor<6x1000x
// CHECK: return %[[PLAIN]], %[[COUNTED]], %[[SUM]], %[[V]]

func.func @main(%x: tensor<1x6x1xf32>, %y: tensor<6x5xf32>, %v: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 2] : (tensor<1x6x1xf32>, tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.reduce(%x init: %three) applies stablehlo.add across dimensions = [0, 2] : (tensor<1x6x1xf32>, tensor<f32>) -> tensor<6xf32>
  %2 = stablehlo.reshape %y : (tensor<6x5xf32>) -> tensor<1x6x5xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0, 2] : (tensor<1x6x5xf32>, tensor<f32>) -> tensor<6xf32>
  %4 = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<6xf32>) -> tensor<6x1000xf32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %5 = stablehlo.reduce(%4 init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<6x1000xf32>, tensor<f32>) -> tensor<6xf32>
  return %0, %1, %3, %5 : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
}
