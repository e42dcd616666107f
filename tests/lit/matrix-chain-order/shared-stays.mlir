// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// A B is read twice: to make it again for both would cost more, so it stays, and so does all of it.

// CHECK: %[[SHARED:.*]] = stablehlo.dot_general {{.*}} -> tensor<40x30xf32>
// CHECK-NEXT: stablehlo.dot_general %[[SHARED]], {{.*}} -> tensor<40x50xf32>
// CHECK-NEXT: stablehlo.dot_general %[[SHARED]], {{.*}} -> tensor<40x60xf32>
// CHECK-NEXT: return

func.func @main(%a: tensor<40x20xf32>, %b: tensor<20x30xf32>, %c: tensor<30x50xf32>, %d: tensor<30x60xf32>) -> (tensor<40x50xf32>, tensor<40x60xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<40x20xf32>, tensor<20x30xf32>) -> tensor<40x30xf32>
  %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0] : (tensor<40x30xf32>, tensor<30x50xf32>) -> tensor<40x50xf32>
  %2 = stablehlo.dot_general %0, %d, contracting_dims = [1] x [0] : (tensor<40x30xf32>, tensor<30x60xf32>) -> tensor<40x60xf32>
  return %1, %2 : tensor<40x50xf32>, tensor<40x60xf32>
}
