// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=100KB | filecheck %s

// What has no element type stands next to a sum that is rewritten, and stays.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<400x3xf32>, %[[B:[^:]*]]: tensor<300x3xf32>, %[[TOKEN:[^:]*]]: !stablehlo.token
// CHECK-NOT: tensor<400x300x3xf32>
// CHECK: %[[PAIR:.*]] = stablehlo.tuple
// CHECK: stablehlo.get_tuple_element %[[PAIR]][0]
// CHECK: "stablehlo.outfeed"(%{{.*}}, %[[TOKEN]])

func.func @main(%a: tensor<400x3xf32>, %b: tensor<300x3xf32>, %token: !stablehlo.token) -> (tensor<400x300xf32>, !stablehlo.token) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<400x3xf32>) -> tensor<400x300x3xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<300x3xf32>) -> tensor<400x300x3xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<400x300x3xf32>
  %3 = stablehlo.multiply %2, %2 : tensor<400x300x3xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<400x300x3xf32>, tensor<f32>) -> tensor<400x300xf32>
  %5 = stablehlo.tuple %4, %zero : tuple<tensor<400x300xf32>, tensor<f32>>
  %6 = stablehlo.get_tuple_element %5[0] : (tuple<tensor<400x300xf32>, tensor<f32>>) -> tensor<400x300xf32>
  %7 = "stablehlo.outfeed"(%6, %token) {outfeed_config = ""} : (tensor<400x300xf32>, !stablehlo.token) -> !stablehlo.token
  return %6, %7 : tensor<400x300xf32>, !stablehlo.token
}
