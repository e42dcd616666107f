// RUN: %exla-opt %s --passes=blocked-top-k | filecheck %s
// RUN: %exla-opt %s --passes=blocked-top-k --target=gpu | filecheck %s --check-prefix=LEFT

// Rows of 2,560 elements are 80 blocks of 32: the three with the largest elements hold the three largest. The blocks are
// read in their order, so that of equal elements the first comes first. Of short rows, and of many elements, all are compared.

// CHECK: %[[BLOCKS:.*]] = stablehlo.reshape %arg0 : (tensor<4x2560xf32>) -> tensor<4x80x32xf32>
// CHECK: %[[BITS:.*]] = stablehlo.bitcast_convert %[[BLOCKS]] : (tensor<4x80x32xf32>) -> tensor<4x80x32xi32>
// CHECK: %[[ORDER:.*]] = stablehlo.select
// CHECK: %[[LARGEST:.*]] = stablehlo.reduce(%[[ORDER]] init: %{{.*}}) applies stablehlo.maximum across dimensions = [2]
// CHECK: chlo.top_k({{.*}}, k = 3) : tensor<4x80xf32>
// CHECK: %[[RISING:.*]] = "stablehlo.sort"
// CHECK: %[[BEGINS:.*]] = stablehlo.multiply %[[RISING]]
// CHECK: %[[READ:.*]] = stablehlo.minimum %[[BEGINS]]
// CHECK: "stablehlo.gather"(%arg0, %[[READ]])
// CHECK: %[[FOUND:.*]], %[[OF:.*]] = chlo.top_k({{.*}}, k = 3) : tensor<4x96xf32>
// CHECK: chlo.top_k(%arg1, k = 3) : tensor<4x1000xf32>
// CHECK: chlo.top_k(%arg0, k = 100) : tensor<4x2560xf32>

// LEFT-NOT: stablehlo.gather

func.func @main(%long: tensor<4x2560xf32>, %short: tensor<4x1000xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x100xf32>) {
  %0:2 = chlo.top_k(%long, k = 3) : tensor<4x2560xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)
  %1:2 = chlo.top_k(%short, k = 3) : tensor<4x1000xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)
  %2:2 = chlo.top_k(%long, k = 100) : tensor<4x2560xf32> -> (tensor<4x100xf32>, tensor<4x100xi32>)
  return %0#0, %0#1, %1#0, %2#0 : tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x100xf32>
}
