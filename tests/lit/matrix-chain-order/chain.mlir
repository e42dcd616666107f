// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// ((A B) C) D takes 48,000 multiplications, (A (B C)) D 26,000.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<40x20xf32>, %[[B:[^:]*]]: tensor<20x30xf32>, %[[C:[^:]*]]: tensor<30x10xf32>, %[[D:[^:]*]]: tensor<10x30xf32>
// CHECK-NEXT: %[[BC:.*]] = stablehlo.dot_general %[[C]], %[[B]], contracting_dims = [0] x [1]{{.*}} -> tensor<10x20xf32>
// CHECK-NEXT: %[[ABC:.*]] = stablehlo.dot_general %[[A]], %[[BC]], contracting_dims = [1] x [1]{{.*}} -> tensor<40x10xf32>
// CHECK-NEXT: %[[ALL:.*]] = stablehlo.dot_general %[[ABC]], %[[D]], contracting_dims = [1] x [0]{{.*}} -> tensor<40x30xf32>
// CHECK-NEXT: return %[[ALL]]

func.func @main(%a: tensor<40x20xf32>, %b: tensor<20x30xf32>, %c: tensor<30x10xf32>, %d: tensor<10x30xf32>) -> tensor<40x30xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<40x20xf32>, tensor<20x30xf32>) -> tensor<40x30xf32>
  %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0] : (tensor<40x30xf32>, tensor<30x10xf32>) -> tensor<40x10xf32>
  %2 = stablehlo.dot_general %1, %d, contracting_dims = [1] x [0] : (tensor<40x10xf32>, tensor<10x30xf32>) -> tensor<40x30xf32>
  return %2 : tensor<40x30xf32>
}
