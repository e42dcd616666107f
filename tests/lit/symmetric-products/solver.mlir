// RUN: %exla-opt %s --passes=symmetric-products --size-threshold=200KB --split-size=100KB | filecheck %s

// A kernel matrix with noise on its diagonal, which each step of a loop multiplies with two vectors.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: stablehlo.while
// CHECK: stablehlo.while{{.*}} tensor<i32>, tensor<[[L:[0-9]+]]xf32>, tensor<[[L]]xf32>
// CHECK: %[[TILE:.*]] = stablehlo.add {{.*}} : tensor<[[B:[0-9]+]]x[[W:[0-9]+]]xf32>
// CHECK-COUNT-2: stablehlo.dot_general %[[TILE]],
// CHECK: stablehlo.concatenate {{.*}} -> tensor<600x2xf32>
// CHECK-NOT: tensor<600x600x

func.func @main(%x: tensor<600x14xf32>, %b: tensor<600x2xf32>) -> tensor<600x2xf32> {
  %first = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %steps = stablehlo.constant dense<3> : tensor<i32>
  %noise = stablehlo.constant dense<0.5> : tensor<600x600xf32>
  %none = stablehlo.constant dense<0.0> : tensor<600x600xf32>
  %0:2 = stablehlo.while(%i = %first, %w = %b) : tensor<i32>, tensor<600x2xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<600x14xf32>, tensor<600x14xf32>) -> tensor<600x600xf32>
    %2 = stablehlo.tanh %1 : tensor<600x600xf32>
    %rows = stablehlo.iota dim = 0 : tensor<600x600xi32>
    %columns = stablehlo.iota dim = 1 : tensor<600x600xi32>
    %is_diagonal = stablehlo.compare EQ, %rows, %columns : (tensor<600x600xi32>, tensor<600x600xi32>) -> tensor<600x600xi1>
    %3 = stablehlo.select %is_diagonal, %noise, %none : tensor<600x600xi1>, tensor<600x600xf32>
    %k = stablehlo.add %2, %3 : tensor<600x600xf32>
    %4 = stablehlo.dot_general %k, %w, contracting_dims = [0] x [0] : (tensor<600x600xf32>, tensor<600x2xf32>) -> tensor<600x2xf32>
    %5 = stablehlo.tanh %4 : tensor<600x2xf32>
    %6 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %6, %5 : tensor<i32>, tensor<600x2xf32>
  }
  return %0#1 : tensor<600x2xf32>
}
