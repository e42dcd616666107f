// RUN: %exla-opt %s --passes=order-statistics --size-threshold=4KB --split-size=1KB 2>&1 | filecheck %s

// Which products are at least as large as the one at rank 900? That one is, if it has the bits that it was picked with.

// CHECK: stablehlo.sort
// CHECK: remark: {{.*}} not found by counting: an element that is read is compared with the tensor that it comes from, which would need its exact bits [order-statistics, EX309]

func.func @main(%a: tensor<50x4xf32>, %b: tensor<40x4xf32>) -> tensor<50x40xi1> {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<50x4xf32>, tensor<40x4xf32>) -> tensor<50x40xf32>
  %x = stablehlo.reshape %d : (tensor<50x40xf32>) -> tensor<2000xf32>
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %before = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<2000xf32>) -> tensor<2000xf32>
  %m = stablehlo.slice %s [900:901] : (tensor<2000xf32>) -> tensor<1xf32>
  %spread = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<1xf32>) -> tensor<50x40xf32>
  %least = stablehlo.compare GE, %d, %spread, FLOAT : (tensor<50x40xf32>, tensor<50x40xf32>) -> tensor<50x40xi1>
  return %least : tensor<50x40xi1>
}
