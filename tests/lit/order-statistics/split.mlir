// RUN: %exla-opt %s --size-threshold=40KB --split-size=20KB --remarks=passed 2>&1 | filecheck %s

// The splitter cuts the products where the passes make them, and where they are read.

// CHECK-NOT: tensor<120x110xf32>
// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK-NOT: tensor<120x110xf32>
// CHECK: not sorted: 2 elements are found by counting, in 8 passes [order-statistics, EX008]
// CHECK-COUNT-2: split over dimension 0 (120): {{.*}} [tensor-splitter, EX001]

func.func @main(%a: tensor<120x4xf32>, %b: tensor<110x4xf32>, %k: tensor<1xi32>) -> (tensor<120xf32>, tensor<2xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<120x4xf32>, tensor<110x4xf32>) -> tensor<120x110xf32>
  %x = stablehlo.reshape %d : (tensor<120x110xf32>) -> tensor<13200xf32>
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = false}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %before = stablehlo.compare GT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<13200xf32>) -> tensor<13200xf32>
  %r = stablehlo.reverse %s, dims = [0] : tensor<13200xf32>
  %m = stablehlo.slice %r [990:991] : (tensor<13200xf32>) -> tensor<1xf32>
  %g = "stablehlo.gather"(%s, %k) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], start_index_map = [0]>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<13200xf32>, tensor<1xi32>) -> tensor<1xf32>
  %both = stablehlo.concatenate %m, %g, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %spread = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<1xf32>) -> tensor<120x110xf32>
  %scaled = stablehlo.multiply %d, %spread : tensor<120x110xf32>
  %e = stablehlo.tanh %scaled : tensor<120x110xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<120x110xf32>, tensor<f32>) -> tensor<120xf32>
  return %sum, %both : tensor<120xf32>, tensor<2xf32>
}
