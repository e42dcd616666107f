// RUN: %exla-opt %s --passes=order-statistics --size-threshold=4KB --split-size=1KB 2>&1 | filecheck %s

// The other half of an argsort: what the sort moves along is read.

// CHECK: stablehlo.sort
// CHECK: remark: {{.*}} not found by counting: a result of the sort other than its keys is read [order-statistics, EX702]

func.func @main(%x: tensor<2000xf32>, %y: tensor<2000xf32>) -> tensor<1xf32> {
  %s:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>, %v: tensor<f32>, %w: tensor<f32>):
    %before = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<2000xf32>, tensor<2000xf32>) -> (tensor<2000xf32>, tensor<2000xf32>)
  %m = stablehlo.slice %s#1 [1000:1001] : (tensor<2000xf32>) -> tensor<1xf32>
  return %m : tensor<1xf32>
}
