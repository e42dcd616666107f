// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// Nothing to gain, so nothing is touched: also of equal orders the one that stands is kept.

// CHECK: %[[AB:.*]] = stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [0] : {{.*}} -> tensor<10x30xf32>
// CHECK-NEXT: %[[ABC:.*]] = stablehlo.dot_general %[[AB]], %{{.*}}, contracting_dims = [1] x [0] : {{.*}} -> tensor<10x40xf32>
// CHECK-NEXT: %[[SQUARE:.*]] = stablehlo.dot_general %[[S:.*]], %[[S]], contracting_dims = [1] x [0] : {{.*}} -> tensor<40x40xf32>
// CHECK-NEXT: %[[CUBE:.*]] = stablehlo.dot_general %[[SQUARE]], %[[S]], contracting_dims = [1] x [0] : {{.*}} -> tensor<40x40xf32>
// CHECK-NEXT: return %[[ABC]], %[[CUBE]]

func.func @main(%a: tensor<10x20xf32>, %b: tensor<20x30xf32>, %c: tensor<30x40xf32>, %s: tensor<40x40xf32>) -> (tensor<10x40xf32>, tensor<40x40xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<10x20xf32>, tensor<20x30xf32>) -> tensor<10x30xf32>
  %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0] : (tensor<10x30xf32>, tensor<30x40xf32>) -> tensor<10x40xf32>
  %2 = stablehlo.dot_general %s, %s, contracting_dims = [1] x [0] : (tensor<40x40xf32>, tensor<40x40xf32>) -> tensor<40x40xf32>
  %3 = stablehlo.dot_general %2, %s, contracting_dims = [1] x [0] : (tensor<40x40xf32>, tensor<40x40xf32>) -> tensor<40x40xf32>
  return %1, %3 : tensor<10x40xf32>, tensor<40x40xf32>
}
