// RUN: %exla-opt %s --passes=normalise | filecheck %s

// A constant chooses the branch: of a case, out of range means the last one; of an if, true means the first.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32>, %[[INDEX:[^:]*]]: tensor<i32>
// CHECK-NEXT: %[[LAST:.*]] = stablehlo.exponential %[[X]]
// CHECK-NEXT: %[[FIRST:.*]] = stablehlo.negate %[[LAST]]
// CHECK-NEXT: "stablehlo.case"(%[[INDEX]])
// CHECK: return %[[FIRST]]

func.func @main(%x: tensor<4xf32>, %index: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %true = stablehlo.constant dense<true> : tensor<i1>
  %0 = "stablehlo.case"(%seven) ({
    %4 = stablehlo.cosine %x : tensor<4xf32>
    stablehlo.return %4 : tensor<4xf32>
  }, {
    %4 = stablehlo.exponential %x : tensor<4xf32>
    stablehlo.return %4 : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  %1 = "stablehlo.if"(%true) ({
    %4 = stablehlo.negate %0 : tensor<4xf32>
    stablehlo.return %4 : tensor<4xf32>
  }, {
    %4 = stablehlo.cosine %0 : tensor<4xf32>
    stablehlo.return %4 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  %2 = "stablehlo.case"(%index) ({
    stablehlo.return %x : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}
